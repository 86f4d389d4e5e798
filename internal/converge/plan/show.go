package plan

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Quote writes an argv so that it can be pasted into a shell.
func Quote(argv []string) string {
	q := make([]string, len(argv))
	for i, a := range argv {
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=/.,:@%^") == "" {
			q[i] = a
			continue
		}
		q[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(q, " ")
}

// Doc is a plan as JSON shows it; see docs/json.md.
type Doc struct {
	Hosts   []HostDoc `json:"hosts"`
	Pending int       `json:"pending"`            // steps that would change something
	Steps   int       `json:"steps"`              // all steps
	LeftOut []string  `json:"left_out,omitempty"` // clients that do not answer
	// Notes are what no step mends, by server.
	Notes map[string][]prepared.Finding `json:"notes,omitempty"`
}

// HostDoc is what would change on one host.
type HostDoc struct {
	Host    string      `json:"host"`
	Changes []ChangeDoc `json:"changes"`
}

// ChangeDoc is one step that would change something.
type ChangeDoc struct {
	Stage   string      `json:"stage"`
	Step    string      `json:"step"`
	Kind    string      `json:"kind"`
	ID      string      `json:"id"`
	Actions []ActionDoc `json:"actions"`
}

// ActionDoc is a command or a file, without secrets.
type ActionDoc struct {
	Title    string   `json:"title"`
	Why      string   `json:"why,omitempty"`
	Command  []string `json:"command,omitempty"`
	Stdin    string   `json:"stdin,omitempty"` // or what stands for a secret
	File     *FileDoc `json:"file,omitempty"`
	Destroys []string `json:"destroys,omitempty"` // serials of disks
	Blank    []string `json:"blank,omitempty"`    // devices that must carry nothing when the action begins
}

// FileDoc is a file to be written, linked, made or removed.
type FileDoc struct {
	Path    string `json:"path"`
	Change  string `json:"change"` // write, remove, directory or symlink
	Mode    string `json:"mode,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Target  string `json:"target,omitempty"`  // of a symlink
	From    string `json:"from,omitempty"`    // the file on the administrator's machine that is copied
	Content string `json:"content,omitempty"` // new content, or what stands for a secret
	Diff    string `json:"diff,omitempty"`    // unified, if there is a file already
}

// Doc makes the plan presentable: host by host, in order, nothing secret in it.
func (p *Plan) Doc() Doc {
	d := Doc{Hosts: []HostDoc{}, Steps: len(p.Steps), LeftOut: slices.Sorted(maps.Keys(p.Left)), Notes: p.Notes}
	index := map[string]int{}
	for _, s := range p.Steps {
		if _, ok := index[s.Host]; !ok {
			index[s.Host] = len(d.Hosts)
			d.Hosts = append(d.Hosts, HostDoc{Host: s.Host, Changes: []ChangeDoc{}})
		}
		if len(s.Actions) == 0 {
			continue
		}
		d.Pending++
		c := ChangeDoc{Stage: s.Stage, Step: s.Title, Kind: s.Kind(), ID: s.ID()}
		for _, a := range s.Actions {
			c.Actions = append(c.Actions, p.actionDoc(a, s.Before))
		}
		h := &d.Hosts[index[s.Host]]
		h.Changes = append(h.Changes, c)
	}
	return d
}

func (p *Plan) actionDoc(a resource.Action, before map[string][]byte) ActionDoc {
	d := ActionDoc{Title: a.Title, Why: a.Why, Command: a.Cmd, Destroys: a.Destroys, Blank: a.Blank}
	if len(a.Stdin) > 0 {
		d.Stdin = p.presentable(a.Stdin, a.Secret)
	}
	f := a.File
	if f == nil {
		return d
	}
	d.File = &FileDoc{Path: f.Path, Change: "write"}
	switch {
	case f.Remove:
		d.File.Change = "remove"
		return d
	case f.Symlink != "":
		d.File.Change, d.File.Target = "symlink", f.Symlink
		return d
	case f.Mkdir:
		d.File.Change = "directory"
	case f.From != "":
		d.File.From = f.From
	default:
		d.File.Content = p.presentable(f.Content, a.Secret)
		if old, ok := before[f.Path]; ok && !a.Secret && text(old) && text(f.Content) {
			d.File.Diff = string(diff.Diff(f.Path+" (now)", old, f.Path, f.Content))
		}
	}
	if f.Mode != 0 {
		d.File.Mode = fmt.Sprintf("%04o", f.Mode)
	}
	d.File.Owner = cmp.Or(f.Owner, "root") + ":" + cmp.Or(f.Group, "root")
	return d
}

// presentable is content as it may be shown: a secret as a digest with a key,
// which tells its owner whether two are the same. Without the key no reader can
// try passwords against it, as against a plain digest; nor is its length told.
func (p *Plan) presentable(b []byte, secret bool) string {
	switch {
	case secret && len(p.DigestKey) == 0:
		return "(secret)"
	case secret:
		mac := hmac.New(sha256.New, p.DigestKey)
		mac.Write(b)
		return fmt.Sprintf("(secret, HMAC %s)", hex.EncodeToString(mac.Sum(nil)[:8]))
	case !text(b):
		return fmt.Sprintf("(binary, %d bytes, sha256 %.8s…)", len(b), fmt.Sprintf("%x", sha256.Sum256(b)))
	}
	return string(b)
}

func text(b []byte) bool { return utf8.Valid(b) && !bytes.ContainsRune(b, 0) }

// Paint marks up a text for a terminal, by the code of an attribute; nil leaves it plain.
type Paint func(code, text string) string

// The attributes of Show.
const (
	hostMark, titleMark, addMark, removeMark, dimMark, warnMark = "1", "36", "32", "31", "2", "1;31"
)

// Show writes the plan, host by host, with the exact commands and files.
func (p *Plan) Show(w io.Writer, paint Paint) error {
	if paint == nil {
		paint = func(_, text string) string { return text }
	}
	d := p.Doc()
	b := bufio.NewWriterSize(w, 1<<16)
	for _, h := range d.Hosts {
		if len(h.Changes) == 0 {
			fmt.Fprintf(b, "%s %s\n", paint(hostMark, h.Host), paint(dimMark, "nothing to change"))
			continue
		}
		fmt.Fprintf(b, "%s\n", paint(hostMark, h.Host))
		stage := ""
		for _, c := range h.Changes {
			if c.Stage != stage {
				stage = c.Stage
				fmt.Fprintf(b, "  %s\n", paint(dimMark, stage))
			}
			fmt.Fprintf(b, "    %s %s\n", paint(titleMark, c.Step), paint(dimMark, "("+c.Kind+" "+c.ID+")"))
			for _, a := range c.Actions {
				showAction(b, a, paint)
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(p.Notes)) {
		for _, f := range p.Notes[h] {
			fmt.Fprintf(b, "%s %s: %s\n", paint(warnMark, "!"), paint(hostMark, h), f)
		}
	}
	if d.Pending == 0 {
		fmt.Fprintf(b, "Nothing to change: %d resources on %d hosts are as wanted.\n", d.Steps, len(d.Hosts))
	} else {
		fmt.Fprintf(b, "%d of %d resources to change.\n", d.Pending, d.Steps)
	}
	return b.Flush()
}

func showAction(b *bufio.Writer, a ActionDoc, paint Paint) {
	const in = "      "
	why, changes := "", ""
	switch {
	case strings.Contains(a.Why, "\n"):
		changes = a.Why // lines with + and -, where the action's own bytes are secret
	case a.Why != "":
		why = paint(dimMark, "  # "+a.Why)
	}
	fmt.Fprintf(b, "%s- %s%s\n", in, a.Title, why)
	switch {
	case len(a.Blank) > 0:
		fmt.Fprintf(b, "%s  %s\n", in, paint(warnMark, "TAKES the disks, after a look that they are still blank: "+strings.Join(a.Destroys, ", ")))
	case len(a.Destroys) > 0:
		fmt.Fprintf(b, "%s  %s\n", in, paint(warnMark, "DESTROYS the data on: "+strings.Join(a.Destroys, ", ")))
	}
	if len(a.Command) > 0 {
		fmt.Fprintf(b, "%s  $ %s\n", in, Quote(a.Command))
		if a.Stdin != "" {
			indent(b, in+"  < ", a.Stdin, paint, dimMark)
		}
	}
	for line := range strings.Lines(changes) {
		indent(b, in+"    ", line, paint, markOf(line))
	}
	f := a.File
	if f == nil {
		return
	}
	switch f.Change {
	case "remove":
		fmt.Fprintf(b, "%s  remove %s\n", in, f.Path)
	case "symlink":
		fmt.Fprintf(b, "%s  link %s -> %s\n", in, f.Path, f.Target)
	case "directory":
		fmt.Fprintf(b, "%s  directory %s %s\n", in, f.Path, paint(dimMark, f.Owner+" "+f.Mode))
	default:
		fmt.Fprintf(b, "%s  file %s %s\n", in, f.Path, paint(dimMark, f.Owner+" "+f.Mode))
		if f.From != "" {
			fmt.Fprintf(b, "%s    copy of %s\n", in, f.From)
			return
		}
		if f.Diff == "" {
			indent(b, in+"    + ", f.Content, paint, addMark)
			return
		}
		for i, line := range strings.Split(strings.TrimRight(f.Diff, "\n"), "\n") {
			if i >= 3 { // after the names of both files
				fmt.Fprintf(b, "%s    %s\n", in, paint(markOf(line), line))
			}
		}
	}
}

// markOf is the attribute of a line of a difference.
func markOf(line string) string {
	switch {
	case strings.HasPrefix(line, "+"):
		return addMark
	case strings.HasPrefix(line, "-"):
		return removeMark
	}
	return dimMark
}

func indent(b *bufio.Writer, prefix, s string, paint Paint, mark string) {
	for line := range strings.Lines(s) {
		b.WriteString(paint(mark, prefix+strings.TrimRight(line, "\n")))
		b.WriteByte('\n')
	}
}
