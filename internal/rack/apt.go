package rack

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aptSource is the host's apt entry for the Debian archive.
type aptSource struct {
	URI string
	// Keyring is the path of the key file the entry is signed by; empty
	// where the entry names none.
	Keyring string
}

// debianSuites are the suites of the Debian archive itself. Entries with other
// suites are for security updates or third parties.
var debianSuites = []string{
	"bookworm", "trixie", "forky", "sid",
	"oldstable", "stable", "testing", "unstable",
}

// hostAptSource finds the Debian archive in sources.list and sources.list.d
// below etcApt (on a host, /etc/apt).
//
// Source: sources.list(5).
func hostAptSource(etcApt string) (aptSource, error) {
	files := []string{filepath.Join(etcApt, "sources.list")}
	for _, pattern := range []string{"*.sources", "*.list"} {
		more, err := filepath.Glob(filepath.Join(etcApt, "sources.list.d", pattern))
		if err != nil {
			return aptSource{}, err
		}
		slices.Sort(more)
		files = append(files, more...)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return aptSource{}, err
		}
		var found []aptSource
		if strings.HasSuffix(f, ".sources") {
			found = parseDeb822(string(text))
		} else {
			found = parseOneLine(string(text))
		}
		for _, s := range found {
			if list, ok := strings.CutPrefix(s.URI, "mirror+file:"); ok {
				// Cloud images keep the mirror in a file of its own.
				uri, err := firstMirror(list)
				if err != nil {
					return aptSource{}, fmt.Errorf("%s: %w", f, err)
				}
				s.URI = uri
			}
			return s, nil
		}
	}
	return aptSource{}, refuse("no Debian archive in %s/sources.list{,.d}: name one with --mirror", etcApt)
}

func firstMirror(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			return f[0], nil
		}
	}
	return "", fmt.Errorf("%s names no mirror", file)
}

// usable reports whether an entry is Debian's main archive and mmdebstrap can fetch
// from it.
func usable(types []string, uri string, suites, components []string) bool {
	if !slices.Contains(types, "deb") || !slices.Contains(components, "main") {
		return false
	}
	known := false
	for _, scheme := range []string{"http:", "https:", "file:", "copy:", "mirror+file:"} {
		known = known || strings.HasPrefix(uri, scheme)
	}
	return known && slices.ContainsFunc(suites, func(s string) bool { return slices.Contains(debianSuites, s) }) &&
		!strings.Contains(uri, "debian-security")
}

// parseOneLine reads the traditional format: deb [options] uri suite
// component...
func parseOneLine(text string) []aptSource {
	var out []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		typ, f := f[0], f[1:]
		keyring := ""
		if len(f) > 0 && strings.HasPrefix(f[0], "[") {
			end := slices.IndexFunc(f, func(w string) bool { return strings.HasSuffix(w, "]") })
			if end < 0 {
				continue
			}
			for _, o := range f[:end+1] {
				if k, ok := strings.CutPrefix(strings.Trim(o, "[]"), "signed-by="); ok {
					keyring = k
				}
			}
			f = f[end+1:]
		}
		if len(f) < 3 || !usable([]string{typ}, f[0], f[1:2], f[2:]) {
			continue
		}
		out = append(out, aptSource{URI: f[0], Keyring: keyringPath(keyring)})
	}
	return out
}

// parseDeb822 reads the stanza format.
func parseDeb822(text string) []aptSource {
	var out []aptSource
	stanza := map[string]string{}
	flush := func() {
		if strings.EqualFold(strings.TrimSpace(stanza["enabled"]), "no") {
			stanza = map[string]string{}
			return
		}
		for _, uri := range strings.Fields(stanza["uris"]) {
			if usable(strings.Fields(stanza["types"]), uri, strings.Fields(stanza["suites"]), strings.Fields(stanza["components"])) {
				out = append(out, aptSource{URI: uri, Keyring: keyringPath(stanza["signed-by"])})
			}
		}
		stanza = map[string]string{}
	}
	field := ""
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
			field = ""
		case line[0] == ' ' || line[0] == '\t':
			if field != "" {
				stanza[field] += "\n" + strings.TrimSpace(line)
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			field = strings.ToLower(strings.TrimSpace(name))
			stanza[field] = strings.TrimSpace(value)
		}
	}
	flush()
	return out
}

// keyringPath returns the path of a key file. It returns "" for a key in the entry
// itself or a fingerprint: mmdebstrap then uses the keys of package
// debian-archive-keyring.
func keyringPath(signedBy string) string {
	for _, p := range strings.FieldsFunc(signedBy, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		if filepath.IsAbs(p) {
			return p
		}
	}
	return ""
}
