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

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// pin is how a target's host key is checked: never on first use.
type pin struct {
	check ssh.HostKeyCallback
	algos []string // what to ask the server for, so that it shows the pinned key
}

// hostKeyPin takes the target's own key, else what the files of known hosts have: keys, or the
// authorities whose certificates count (@cert-authority).
func hostKeyPin(t Target, r *route) (pin, error) {
	addr := r.addr()
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
	unknown := func(got ssh.PublicKey) error {
		return &Error{Host: t.Name, Address: addr, Err: ErrHostKey,
			What: fmt.Sprintf("the host shows %s, which is not known: it is neither in the spec (host_key) nor in %s", fingerprint(got), r.known[0]),
			Mend: fmt.Sprintf("compare it with the fingerprint on the host's console, then add the line of `ssh-keyscan -p %d %s` to that file", r.port, r.host)}
	}
	files := lists.Only(r.known, exists)
	if len(files) == 0 {
		return pin{check: func(_ string, _ net.Addr, got ssh.PublicKey) error { return unknown(got) }}, nil
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return pin{}, &Error{Host: t.Name, Address: addr, What: "known_hosts file " + strings.Join(files, ", "), Err: err, Mend: "mend or remove the line"}
	}
	known := db.HostKeyCallback()
	return pin{algos: db.HostKeyAlgorithms(r.lookup), check: func(_ string, _ net.Addr, got ssh.PublicKey) error {
		// Through a proxy the other end has no address; the name alone decides.
		err := known(r.lookup, &net.TCPAddr{}, got)
		var ke *xknownhosts.KeyError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &ke) && len(ke.Want) == 0:
			return unknown(got)
		case errors.As(err, &ke):
			want := lists.Map(ke.Want, func(k xknownhosts.KnownKey) ssh.PublicKey { return k.Key })
			return mismatch(t, addr, got, want, fmt.Sprintf("%s:%d", ke.Want[0].Filename, ke.Want[0].Line))
		}
		what := "host key"
		if _, ok := got.(*ssh.Certificate); ok {
			what = "the host's certificate is not one of an authority that " + strings.Join(files, ", ") + " trusts for " + r.lookup
		}
		return &Error{Host: t.Name, Address: addr, What: what, Err: kindError{ErrHostKey, err}}
	}}, nil
}

func mismatch(t Target, addr string, got ssh.PublicKey, want []ssh.PublicKey, where string) error {
	fps := lists.Map(want, fingerprint)
	return &Error{Host: t.Name, Address: addr, Err: ErrHostKey,
		What: fmt.Sprintf("wrong host key: the host shows %s, but %s has %s", fingerprint(got), where, strings.Join(fps, " and ")),
		Mend: "this is another host, or an attacker in between, unless the host was installed anew: compare with its console, then mend the pinned key"}
}

func fingerprint(k ssh.PublicKey) string { return k.Type() + " " + ssh.FingerprintSHA256(k) }

// algorithms are the signature algorithms of a key type.
func algorithms(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// authMethods are the keys that the spec or ssh's configuration names, in that order, else the
// usual files; then those of the SSH agent. tried describes them. A server takes few keys (six)
// before it hangs up, so the agent's only help where no key is named, or where a named one has
// a passphrase. closeAgent ends the connection to the SSH agent.
func authMethods(t Target, r *route) (methods []ssh.AuthMethod, tried string, closeAgent func(), err error) {
	closeAgent = func() {}
	bad := func(what, mend string, err error) error {
		return &Error{Host: t.Name, Address: r.addr(), What: what, Err: err, Mend: mend}
	}
	files, named := r.identities, r.identities != nil
	if !named {
		files = []string{expandHome("~/.ssh/id_ed25519"), expandHome("~/.ssh/id_ecdsa"), expandHome("~/.ssh/id_rsa")}
	}
	var signers []ssh.Signer
	var locked, from []string
	for _, f := range files {
		s, err := readIdentity(f)
		var missing *ssh.PassphraseMissingError
		switch {
		case err == nil:
			if c, err := certified(f, s); err == nil {
				signers, from = append(signers, c), append(from, certificateOf(f))
			}
			signers, from = append(signers, s), append(from, f)
		case t.Identity == "" && errors.Is(err, fs.ErrNotExist):
		case errors.As(err, &missing):
			locked = append(locked, f)
		case t.Identity == "":
			return nil, "", closeAgent, bad("private key "+f, "name the key to use as ssh.identity", err)
		default:
			return nil, "", closeAgent, bad("private key "+f, "mend ssh.identity, or the file's permissions", err)
		}
	}
	if r.agent != "" && (!r.only || len(locked) > 0) {
		if conn, err := net.Dial("unix", r.agent); err == nil {
			closeAgent = func() { _ = conn.Close() }
			if inAgent, err := sshagent.NewClient(conn).Signers(); err == nil {
				inAgent = wanted(inAgent, locked, r.only)
				signers, from = append(signers, inAgent...), append(from, fmt.Sprintf("%d of the SSH agent", len(inAgent)))
			}
		}
	}
	if len(signers) == 0 {
		closeAgent()
		if len(locked) > 0 {
			return nil, "", func() {}, bad("private key "+strings.Join(locked, ", ")+" has a passphrase", "load it into the SSH agent: ssh-add "+locked[0], ErrLogin)
		}
		return nil, "", func() {}, bad("no private key to log in with", "name one as ssh.identity, or load one into the SSH agent", ErrLogin)
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signers...)}, strings.Join(from, ", "), closeAgent, nil
}

// wanted puts the agent's keys that belong to the files first; with only, the others are left
// out, unless no file tells its public key.
func wanted(inAgent []ssh.Signer, files []string, only bool) []ssh.Signer {
	var first, rest []ssh.Signer
	var public []string
	for _, f := range files {
		if text, err := os.ReadFile(f + ".pub"); err == nil {
			if key, _, _, _, err := ssh.ParseAuthorizedKey(text); err == nil {
				public = append(public, string(key.Marshal()))
			}
		}
	}
	for _, s := range inAgent {
		if slices.Contains(public, string(s.PublicKey().Marshal())) {
			first = append(first, s)
		} else {
			rest = append(rest, s)
		}
	}
	if only && len(public) > 0 {
		return first
	}
	return append(first, rest...)
}

// certified is a key with the certificate that lies beside its file.
func certified(file string, s ssh.Signer) (ssh.Signer, error) {
	text, err := os.ReadFile(certificateOf(file))
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, err
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		return nil, errors.New("no certificate")
	}
	return ssh.NewCertSigner(cert, s)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
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
