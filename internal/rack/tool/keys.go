package tool

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/crypto/ssh"
)

// EnsureKey returns the public half of the SSH key in a file as a line of an
// authorized_keys file. It makes a new key pair if the file is missing.
func EnsureKey(file, comment string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", err
		}
		block, err := ssh.MarshalPrivateKey(private, comment)
		if err != nil {
			return "", err
		}
		text = pem.EncodeToMemory(block)
		if err := WriteNew(file, text); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// WriteNew writes a file with a secret, and makes its directory.
func WriteNew(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o600)
}

// EnsureSecret returns the single line of a secret's file, and makes a random secret
// if the file is missing. It refuses a file that others can read.
func EnsureSecret(file string) (string, error) {
	st, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		b := make([]byte, 8)
		if _, err := rand.Read(b); err != nil {
			return "", err
		}
		secret := hex.EncodeToString(b)
		return secret, WriteNew(file, []byte(secret+"\n"))
	} else if err != nil {
		return "", err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", Refuse("%s: a secret that others may read (mode %04o): chmod 600 it", file, st.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	// The secret goes into configuration files of ipmi_sim and snmpd, whose quoting
	// differs. IPMI 2.0 tools send at most 16 bytes.
	for _, r := range secret {
		if r <= ' ' || r > '~' || strings.ContainsRune("\"'\\#", r) {
			return "", Refuse("%s: a secret may have printable ASCII characters without blanks, quotes, backslash and #", file)
		}
	}
	if secret == "" || len(secret) > 16 {
		return "", Refuse("%s: a secret of %d characters: want 1 to 16", file, len(secret))
	}
	return secret, nil
}
