package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
)

// pin is how a target's host key is checked: never on first use.
type pin struct {
	check ssh.HostKeyCallback
	algos []string // what to ask the server for, so that it shows the pinned key
}

// hostKeyPin takes the target's own key, else what known_hosts has.
func hostKeyPin(t Target, addr string) (pin, error) {
	if t.HostKey != "" {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(t.HostKey))
		if err != nil {
			return pin{}, &Error{Host: t.Name, Address: addr, What: "host_key is no SSH public key", Err: err,
				Mend: "give it as ssh-keyscan prints it, without the host: 'ssh-ed25519 AAAA…'"}
		}
		return pin{
			check: func(_ string, _ net.Addr, got ssh.PublicKey) error {
				if bytes.Equal(got.Marshal(), key.Marshal()) {
					return nil
				}
				return mismatch(t, addr, got, []ssh.PublicKey{key}, "the spec or inventory (host_key)")
			},
			algos: algorithms(key.Type()),
		}, nil
	}
	file := t.KnownHosts
	if file == "" {
		file = expandHome("~/.ssh/known_hosts")
	}
	unknown := func(got ssh.PublicKey) error {
		return &Error{Host: t.Name, Address: addr, Err: ErrHostKey,
			What: fmt.Sprintf("the host shows %s, which is not known: it is neither in the spec (host_key) nor in %s", fingerprint(got), file),
			Mend: fmt.Sprintf("compare it with the fingerprint on the host's console, then add the line of `ssh-keyscan -p %d %s` to that file", t.port(), t.Address)}
	}
	known, err := knownhosts.New(file)
	if errors.Is(err, fs.ErrNotExist) {
		return pin{check: func(_ string, _ net.Addr, got ssh.PublicKey) error { return unknown(got) }}, nil
	}
	if err != nil {
		return pin{}, &Error{Host: t.Name, Address: addr, What: "known_hosts file " + file, Err: err, Mend: "mend or remove the line"}
	}
	p := pin{check: func(hostname string, remote net.Addr, got ssh.PublicKey) error {
		err := known(hostname, remote, got)
		var ke *knownhosts.KeyError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &ke) && len(ke.Want) == 0:
			return unknown(got)
		case errors.As(err, &ke):
			var want []ssh.PublicKey
			for _, k := range ke.Want {
				want = append(want, k.Key)
			}
			return mismatch(t, addr, got, want, fmt.Sprintf("%s:%d", ke.Want[0].Filename, ke.Want[0].Line))
		}
		return &Error{Host: t.Name, Address: addr, What: "host key", Err: errors.Join(ErrHostKey, err)}
	}}
	// Which types are known is told only by an error about another key.
	var ke *knownhosts.KeyError
	if errors.As(known(addr, placeholderAddr(t), placeholderKey{}), &ke) {
		for _, k := range ke.Want {
			p.algos = append(p.algos, algorithms(k.Key.Type())...)
		}
	}
	return p, nil
}

func mismatch(t Target, addr string, got ssh.PublicKey, want []ssh.PublicKey, where string) error {
	var fps []string
	for _, k := range want {
		fps = append(fps, fingerprint(k))
	}
	return &Error{Host: t.Name, Address: addr, Err: ErrHostKey,
		What: fmt.Sprintf("wrong host key: the host shows %s, but %s has %s", fingerprint(got), where, strings.Join(fps, " and ")),
		Mend: "this is another host, or somebody in between, unless the host was installed anew: compare with its console, then mend the pinned key"}
}

func fingerprint(k ssh.PublicKey) string { return k.Type() + " " + ssh.FingerprintSHA256(k) }

// algorithms are the signature algorithms of a key type.
func algorithms(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// placeholderKey is a key no host has.
type placeholderKey struct{}

func (placeholderKey) Type() string                        { return "placeholder" }
func (placeholderKey) Marshal() []byte                     { return []byte("placeholder") }
func (placeholderKey) Verify([]byte, *ssh.Signature) error { return errors.New("placeholder") }

func placeholderAddr(t Target) net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(t.Address), Port: t.port()}
}

// authMethods are the target's own identity, or the SSH agent and the usual
// files. close ends the connection to the SSH agent.
func authMethods(t Target, addr string) (methods []ssh.AuthMethod, closeAgent func(), err error) {
	closeAgent = func() {}
	files := []string{t.Identity}
	if t.Identity == "" {
		files = []string{expandHome("~/.ssh/id_ed25519"), expandHome("~/.ssh/id_ecdsa"), expandHome("~/.ssh/id_rsa")}
	}
	var signers []ssh.Signer
	var locked []string // encrypted: only the SSH agent can use them
	for _, f := range files {
		s, err := readIdentity(f)
		var missing *ssh.PassphraseMissingError
		switch {
		case err == nil:
			signers = append(signers, s)
		case t.Identity == "" && errors.Is(err, fs.ErrNotExist):
		case errors.As(err, &missing):
			locked = append(locked, f)
		case t.Identity == "":
			return nil, closeAgent, &Error{Host: t.Name, Address: addr, What: "private key " + f, Err: err, Mend: "name the key to use as ssh.identity"}
		default:
			return nil, closeAgent, &Error{Host: t.Name, Address: addr, What: "private key " + f, Err: err, Mend: "mend ssh.identity, or the file's permissions"}
		}
	}
	agentKeys := func() ([]ssh.Signer, error) { return nil, nil }
	if sock := os.Getenv("SSH_AUTH_SOCK"); sock != "" && (t.Identity == "" || len(locked) > 0) {
		if conn, err := net.Dial("unix", sock); err == nil {
			closeAgent = func() { _ = conn.Close() }
			agentKeys = sshagent.NewClient(conn).Signers
		}
	}
	inAgent, err := agentKeys()
	if err == nil {
		signers = append(signers, inAgent...)
	}
	if len(signers) == 0 {
		e := &Error{Host: t.Name, Address: addr, What: "no private key to log in with", Err: ErrLogin,
			Mend: "name one as ssh.identity, or load one into the SSH agent"}
		if len(locked) > 0 {
			e.What = "private key " + strings.Join(locked, ", ") + " has a passphrase"
			e.Mend = "load it into the SSH agent: ssh-add " + locked[0]
		}
		closeAgent()
		return nil, func() {}, e
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signers...)}, closeAgent, nil
}

// readIdentity reads a private key; one that others may read is refused, as
// ssh(1) does.
func readIdentity(file string) (ssh.Signer, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("mode %04o lets others read it: chmod 600", fi.Mode().Perm())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}

// expandHome replaces a leading "~/".
func expandHome(p string) string {
	rest, ok := strings.CutPrefix(p, "~/")
	if !ok {
		return p
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return p
	}
	return filepath.Join(home, rest)
}

func uniq(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
