package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// reportSchema is that of the manifest of a bug report.
const reportSchema = "mortar.bugreport/v1"

// evidence is what a bug report holds of a brick beside what it asks the hosts for.
type evidence struct {
	Status []byte // mortar.status, JSON
	Facts  []byte // what the hosts said, raw, JSON: status --save-facts
	Events []byte // a JSON object a line
	// Hosts are those to ask, Since the begin of the journals' lines.
	Hosts []string
	Since time.Time
}

// configs are files of a host that tell how it is set up; none holds a secret. Those of
// Mortar's own resource agent are in Facts.
var configs = []string{
	"/etc/os-release", "/proc/cmdline", "/proc/version", "/proc/mdstat", "/proc/meminfo", "/proc/mounts",
	"/etc/multipath.conf", "/etc/mdadm/mdadm.conf", "/etc/corosync/corosync.conf", "/etc/nfs.conf", "/etc/fstab",
}

// reportLines bounds the lines of each host's journal, the newest ones.
const reportLines = 20000

// bugReport collects what a maintainer needs to see a fault of Mortar's: versions, the spec,
// the status with the hosts' raw answers, events, and from each host its configuration, its
// cluster and its journal. It holds no secret that the spec names, nor the cluster's key: each
// is replaced in whatever form it has. A secret that read cannot give is an error, because it
// could not be looked for. A silent host goes into Missing.
func bugReport(ctx context.Context, s *spec.Spec, e evidence, hosts host.ByName, read func(file string) ([]byte, error), version string, now time.Time) (*Backup, error) {
	hide, err := newHider(append(secretsOf(s), plan.CorosyncKey), read)
	if err != nil {
		return nil, err
	}
	b := begin(reportSchema, s, version, now)
	b.hide = hide
	for name, text := range map[string][]byte{specName: s.Source, "status.json": e.Status, "facts.json": e.Facts, "events.jsonl": e.Events} {
		b.add(name, text)
	}
	parts := make([]Backup, len(e.Hosts))
	var wg sync.WaitGroup
	for i, name := range e.Hosts {
		parts[i].hide = hide
		wg.Go(func() { parts[i].askHost(ctx, hosts(name), e.Since) })
	}
	wg.Wait()
	for _, p := range parts {
		b.Files, b.Missing = append(b.Files, p.Files...), append(b.Missing, p.Missing...)
	}
	slices.SortFunc(b.Files, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	return b, nil
}

// askHost adds what one host says of itself.
func (b *Backup) askHost(ctx context.Context, s *host.Session, since time.Time) {
	at := func(name string) string { return path.Join("hosts", s.Name, name) }
	hello, err := s.Hello(ctx)
	if err != nil {
		b.miss("host %s: %v", s.Name, err)
		return
	}
	facts, err := host.Ask(ctx, s, gather.Op, gather.Request{Plan: true, Disks: true, Files: []string{"/proc/self/mounts"}})
	if err != nil {
		b.miss("host %s: facts: %v", s.Name, err)
	}
	if text, err := json.MarshalIndent(map[string]any{"agent": hello, "facts": facts}, "", " "); err == nil {
		b.add(at("host.json"), text)
	}
	for _, c := range configs {
		if text, err := s.Read(ctx, c); err == nil { // not each host has each of them
			b.add(at(c), []byte(text))
		}
	}
	var lines bytes.Buffer
	err = s.Follow(ctx, func(line string) { lines.WriteString(line + "\n") },
		journal.Argv(journal.Idents, "--priority=info", "-n", strconv.Itoa(reportLines), fmt.Sprintf("--since=@%d", since.Unix()))...)
	if err != nil {
		b.miss("host %s: its journal: %v", s.Name, err)
	}
	b.add(at("journal.jsonl"), lines.Bytes())
	if _, err := s.Read(ctx, "/etc/corosync/corosync.conf"); err == nil {
		b.ask(ctx, s, at("cib.xml"), "cibadmin", "--query")
		b.ask(ctx, s, at("crm_mon.xml"), strings.Fields(linux.CRMCommand)...)
		b.ask(ctx, s, at("corosync-cfgtool.txt"), "corosync-cfgtool", "-s")
	}
}

// secretName matches the names of what holds a secret.
const secretName = `(?:passw(?:or)?d|passphrase|community|secret(?:_key)?|(?:api|access|auth)[_-]?key|[a-z][_-]token|hexadecimal_kg)`

// unnamed are the places of secrets that no file of the spec has, such as those of an earlier
// spec: sub-expression 2 is the secret. Quotes may be those of a JSON string.
//
// Source: the parameters of fence-agents; ipmitool(1), snmpcmd(1), RFC 7468, RFC 7617
var unnamed = []*regexp.Regexp{
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)-----END [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)((?:\\+[nr]|[A-Za-z0-9+/=\s])*)`),
	// A line of a key in a journal: base64, of capitals, small letters and digits.
	regexp.MustCompile(`(^|[\s"]|\\+[nrt])([A-Za-z0-9+/]{64,}={0,2})`),
	regexp.MustCompile(`(?i)(\bname=\\*["'][a-z0-9_]*` + secretName + `\\*["'][^<>/]{0,80}?\bvalue=\\*["'])([^"']*?)\\*["']`),
	regexp.MustCompile(`(?i)(\bvalue=\\*["'])([^"'<>]*?)\\*["'][^<>/]{0,80}?\bname=\\*["'][a-z0-9_]*` + secretName + `\\*["']`),
	regexp.MustCompile(`(?i)(` + secretName + `\\*["']?\s*[:=]\s*\\*["'])([^"'\\]+)`),
	regexp.MustCompile(`(?i)(` + secretName + `\\*["']?\s*[:=]\s*)([^\s"'\\,;&<>{}\[\]]+)`),
	regexp.MustCompile(`(?i)(--(?:token|` + secretName + `)\\*["']?[=, ]+\\*["']?)([^\s"'\\,\]]+)`),
	regexp.MustCompile(`((?:\b|\\+[nt])(?:ipmitool\b[^"\n]*? -P|snmp\w+\b[^"\n]*? -[cAX]|fence_\w+\b[^"\n]*? -[pc]) *)([^\s"\\]+)`),
	regexp.MustCompile(`(?i)(\bauthorization\\*["']?\s*[:=]\s*\\*["']?(?:basic|bearer|digest) +)([^\s"\\]+)`),
	regexp.MustCompile(`(://[^/\s:@"]+:)([^/\s@"]+)@`),
	regexp.MustCompile(`(totem *\{[^}]*?(?:[^a-z_]|\\+[nt])key: *)([^\s\\]+)`), // of corosync.conf
}

// newHider returns what replaces the secrets of files in a text.
func newHider(files []string, read func(file string) ([]byte, error)) (func([]byte) []byte, error) {
	of := map[string]string{} // file, by form of its secret
	for _, f := range files {
		value, err := read(f)
		if err != nil {
			return nil, fmt.Errorf("the secret of %s cannot be read, so the report could not be freed of it: %w", f, err)
		}
		for _, form := range append(formsOf(string(value)), formsOf(strings.TrimSpace(string(value)))...) {
			of[form] = f
		}
	}
	delete(of, "")
	// The longest first: a secret may be a part of another one.
	var pairs []string
	for _, form := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		pairs = append(pairs, form, "[secret of "+path.Base(of[form])+"]")
	}
	known := strings.NewReplacer(pairs...)
	return func(text []byte) []byte {
		text = []byte(known.Replace(string(text)))
		for _, re := range unnamed {
			text = hideMatches(text, re, files)
		}
		return text
	}, nil
}

// hideMatches replaces sub-expression 2 of each match, unless it is the name of a file or a
// checksum, or is replaced already.
func hideMatches(text []byte, re *regexp.Regexp, files []string) []byte {
	var out []byte
	at := 0
	for _, m := range re.FindAllSubmatchIndex(text, -1) {
		value := string(text[m[4]:m[5]])
		_, notHex := hex.DecodeString(value)
		if value == "" || strings.HasPrefix(value, "[secret") || slices.Contains(files, value) || len(value) == 2*sha256.Size && notHex == nil {
			continue
		}
		out = append(append(out, text[at:m[4]]...), "[secret]"...)
		at = m[5]
	}
	return append(out, text[at:]...)
}

// codedFrom is how long a secret must be, in bytes, to be looked for in other codes than its own:
// those of shorter ones are parts of ordinary text and numbers.
const codedFrom = 4

// formsOf are the forms that a secret has in files of a report: plain; in base64, alone and within a
// longer text; in hex; in a URL; in a shell's quotes; escaped for XML, for JSON and for JSON within
// JSON. journalctl prints a message that is not valid UTF-8 as an array of bytes.
func formsOf(v string) []string {
	raw := []byte(v)
	out := []string{v, strings.Trim(strconv.Quote(v), `"`), strings.ReplaceAll(v, "'", `'\''`)}
	if len(raw) >= codedFrom {
		numbers := lists.Map(raw, func(b byte) string { return strconv.Itoa(int(b)) })
		out = append(out, base64.URLEncoding.EncodeToString(raw), hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)),
			url.QueryEscape(v), url.PathEscape(v), strings.Join(numbers, ","), strings.Join(numbers, ", "))
		for before := range 3 { // bytes of other text
			// The characters at both ends hold bits of what is beside the secret.
			whole := base64.StdEncoding.EncodeToString(append(make([]byte, before), raw...))
			end := (before + len(raw)) * 8 / 6
			out = append(out, whole, whole[(before*8+5)/6:end])
		}
	}
	var x bytes.Buffer
	if xml.EscapeText(&x, raw) == nil {
		out = append(out, x.String(), strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(v))
	}
	for range 2 { // JSON, and JSON in JSON
		for _, plain := range slices.Clone(out) {
			for _, html := range []bool{false, true} {
				var j bytes.Buffer
				enc := json.NewEncoder(&j)
				enc.SetEscapeHTML(html)
				if enc.Encode(plain) == nil {
					out = append(out, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(j.String()), `"`), `"`))
				}
			}
		}
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}
