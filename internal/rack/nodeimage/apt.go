package nodeimage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/tool"
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
var debianSuites = []string{"bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}

// HostAptSource finds the Debian archive in sources.list and sources.list.d
// below etcApt (on a host, /etc/apt).
//
// Source: sources.list(5).
func HostAptSource(etcApt string) (aptSource, error) {
	files := []string{filepath.Join(etcApt, "sources.list")}
	for _, pattern := range []string{"*.sources", "*.list"} {
		more, err := filepath.Glob(filepath.Join(etcApt, "sources.list.d", pattern))
		if err != nil {
			return aptSource{}, err
		}
		files = append(files, more...)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return aptSource{}, err
		}
		parse := parseOneLine
		if strings.HasSuffix(f, ".sources") {
			parse = parseDeb822
		}
		found := parse(string(text))
		if len(found) == 0 {
			continue
		}
		s := found[0]
		if list, ok := strings.CutPrefix(s.URI, "mirror+file:"); ok {
			// Cloud images keep the mirror in a file of its own.
			text, err := os.ReadFile(list)
			if err != nil {
				return aptSource{}, fmt.Errorf("%s: %w", f, err)
			}
			uri := firstMirror.FindStringSubmatch(string(text))
			if uri == nil {
				return aptSource{}, fmt.Errorf("%s: %s names no mirror", f, list)
			}
			s.URI = uri[1]
		}
		return s, nil
	}
	return aptSource{}, tool.Refuse("no Debian archive in %s/sources.list{,.d}: name one with --mirror", etcApt)
}

var (
	firstMirror = regexp.MustCompile(`(?m)^\s*([^#\s]\S*)`)
	// oneLine is deb [options] uri suite component... of the traditional format.
	oneLine  = regexp.MustCompile(`(?m)^[ \t]*deb[ \t]+(?:\[([^\]\n]*)\][ \t]*)?(\S+)[ \t]+(\S+)[ \t]+([^#\n]+)`)
	signedBy = regexp.MustCompile(`signed-by=(\S+)`)
	comments = regexp.MustCompile(`(?m)^#.*\n`)
	// field is a field of the stanza format, with its continued lines.
	field = regexp.MustCompile(`(?m)^([\w-]+):(.*(?:\n[ \t].*)*)`)
	// archives are the URIs from which mmdebstrap can fetch.
	archives = regexp.MustCompile(`^(https?|file|copy|mirror\+file):`)
)

// usable reports whether an entry is Debian's main archive and mmdebstrap can fetch
// from it.
func usable(uri string, suites, components []string) bool {
	return archives.MatchString(uri) && !strings.Contains(uri, "debian-security") && slices.Contains(components, "main") &&
		slices.ContainsFunc(suites, func(s string) bool { return slices.Contains(debianSuites, s) })
}

func parseOneLine(text string) []aptSource {
	var out []aptSource
	for _, m := range oneLine.FindAllStringSubmatch(text, -1) {
		if !usable(m[2], m[3:4], strings.Fields(m[4])) {
			continue
		}
		s := aptSource{URI: m[2]}
		if key := signedBy.FindStringSubmatch(m[1]); key != nil {
			s.Keyring = keyringPath(key[1])
		}
		out = append(out, s)
	}
	return out
}

func parseDeb822(text string) []aptSource {
	var out []aptSource
	for _, stanza := range regexp.MustCompile(`\n\s*\n`).Split(comments.ReplaceAllString(text, ""), -1) {
		f := map[string][]string{}
		for _, m := range field.FindAllStringSubmatch(stanza, -1) {
			f[strings.ToLower(m[1])] = strings.Fields(m[2])
		}
		if !slices.Contains(f["types"], "deb") || slices.Contains(f["enabled"], "no") {
			continue
		}
		for _, uri := range f["uris"] {
			if usable(uri, f["suites"], f["components"]) {
				out = append(out, aptSource{URI: uri, Keyring: keyringPath(strings.Join(f["signed-by"], " "))})
			}
		}
	}
	return out
}

// keyringPath returns the path of a key file. It returns "" for a key in the entry
// itself or a fingerprint: mmdebstrap then uses the keys of package
// debian-archive-keyring.
func keyringPath(signedBy string) string {
	for _, p := range strings.FieldsFunc(signedBy, func(r rune) bool { return r == ',' || r == ' ' }) {
		if filepath.IsAbs(p) {
			return p
		}
	}
	return ""
}
