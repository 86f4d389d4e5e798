package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
)

// reportSchema is that of the manifest of a bug report.
const reportSchema = "mortar.bugreport/v1"

// Evidence is what a bug report holds of a brick beside what it asks the hosts for.
type Evidence struct {
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

// BugReport collects what a maintainer needs to see a fault of Mortar's: versions, the spec,
// the status with the hosts' raw answers, events, and from each host its configuration, its
// cluster and its journal. It holds no secret that the spec names, nor the cluster's key: each
// is replaced in whatever form it has. A secret that read cannot give is an error, because it
// could not be looked for. A silent host goes into Missing.
func BugReport(ctx context.Context, s *spec.Spec, e Evidence, hosts host.ByName, read func(file string) ([]byte, error), corosyncKey, version string, now time.Time) (*Backup, error) {
	hide, err := newHider(append(secretsOf(s), corosyncKey), read)
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
	facts, err := s.Facts(ctx)
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

// namedSecret is a secret in an attribute of the CIB, which may be in a JSON string: one that a
// spec named before, too. Source: the parameters of fence_ipmilan(8) and fence_apc_snmp(8).
const namedSecret = `(name=\\*"(?:passwd|password|community|snmp_auth_passwd|snmp_priv_passwd)\\*" +value=\\*")[^"]*?(\\*")`

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
	known, named := strings.NewReplacer(pairs...), regexp.MustCompile(namedSecret)
	return func(text []byte) []byte {
		return named.ReplaceAll([]byte(known.Replace(string(text))), []byte("${1}[secret]${2}"))
	}, nil
}

// formsOf are the forms that a secret has in files of a report: as it is, in base64 and hex, and
// escaped for XML, for JSON, and for XML within JSON.
func formsOf(v string) []string {
	raw := []byte(v)
	out := []string{v, base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw))}
	var x bytes.Buffer
	if xml.EscapeText(&x, raw) == nil {
		out = append(out, x.String(), strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(v))
	}
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
	return out
}
