package plan

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// CorosyncKey is the name under which a plan asks for the cluster's key,
// which no file of the spec holds: it is made once, by the first apply.
const CorosyncKey = "corosync.key"

// digestKeyFile holds the key of the digests in plans. It never leaves the
// administrator's machine.
const digestKeyFile = "plan-digest.key"

// digestKeySize is that of the output of HMAC-SHA-256, in bytes.
// Source: RFC 2104, section 3.
const digestKeySize = 32

// corosyncKeySize is what corosync-keygen(8) makes, in bytes.
const corosyncKeySize = 256

// StateDir is where Mortar keeps what belongs to a brick on the
// administrator's machine: .mortar/<brick> beside the spec.
func StateDir(s *spec.Spec) string {
	return filepath.Join(filepath.Dir(s.File), ".mortar", s.Name)
}

// Secrets returns what reads the secrets of a spec: a file, relative to the
// spec, that only its owner may read, or CorosyncKey. A secret whose file does
// not exist is what the spec's password_command prints. With keep, a key
// that does not exist yet is made and written to the state directory;
// without, it is made for this plan alone. It is safe for concurrent use.
func Secrets(s *spec.Spec, keep bool) func(file string) ([]byte, error) {
	var mu sync.Mutex
	var key []byte
	printed := map[string][]byte{} // by the password command
	return func(file string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if file != CorosyncKey {
			p := file
			if !filepath.IsAbs(p) {
				p = filepath.Join(filepath.Dir(s.File), p)
			}
			b, err := readSecret(p)
			if len(s.PasswordCommand) == 0 || !errors.Is(err, fs.ErrNotExist) {
				return b, err
			}
			if printed[file] == nil {
				if printed[file], err = askSecret(s.PasswordCommand, file); err != nil {
					return nil, err
				}
			}
			return printed[file], nil
		}
		if key != nil {
			return key, nil
		}
		b, err := madeOnce(s, CorosyncKey, corosyncKeySize, "copy /etc/corosync/authkey of a server over it", keep)
		if err != nil {
			return nil, err
		}
		key = b
		return key, nil
	}
}

// DigestKey is the key with which plans of a brick show digests of its
// secrets. The first call with keep, by apply, makes and keeps it: from then
// on a secret has the same digest in every plan.
func DigestKey(s *spec.Spec, keep bool) ([]byte, error) {
	return madeOnce(s, digestKeyFile, digestKeySize, "remove it, and apply makes another", keep)
}

// madeOnce reads a key of the brick's state directory. One that does not exist
// yet is made, and with keep written there.
func madeOnce(s *spec.Spec, name string, size int, mend string, keep bool) ([]byte, error) {
	p := filepath.Join(StateDir(s), "secrets", name)
	b, err := readSecret(p)
	if err == nil && len(b) != size {
		return nil, fmt.Errorf("%s has %d bytes, not %d; %s", p, len(b), size, mend)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	b = make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	if !keep {
		return b, nil
	}
	return b, writeSecret(p, b)
}

// askTime bounds the password command. It may ask the administrator for a pass phrase.
const askTime = 2 * time.Minute

// askSecret runs the password command for one secret. The command has this process'
// environment, because password managers find their stores and agents by it.
func askSecret(argv []string, file string) ([]byte, error) {
	words := lists.Map(argv, func(w string) string { return strings.ReplaceAll(w, "{}", file) })
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", askTime)
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s: password_command %q: %w: %s", file, argv, err, strings.TrimSpace(said.String()))
	}
	if out = bytes.TrimRight(out, "\r\n"); len(out) == 0 {
		return nil, fmt.Errorf("secret %s: password_command %q printed nothing", file, argv)
	}
	return out, nil
}

func readSecret(p string) ([]byte, error) {
	fi, err := os.Stat(p)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("secret: %s has mode %04o, others may read it; chmod 600 %s", p, fi.Mode().Perm(), p)
	}
	b, err := os.ReadFile(p)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("secret: %s is empty; put the secret into it", p)
	}
	return b, nil
}

// writeSecret writes a file that is whole or not there, with its directory.
func writeSecret(p string, b []byte) error {
	dir := filepath.Dir(p)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(p, b, 0o600)
}
