package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// mountReasons are of the options that follow from the way of the mount
// itself; the tuned ones carry their reason in the design.
var mountReasons = map[string]design.Setting{
	"vers":       {Reason: "protocol version; both ends could agree on another otherwise", Source: "nfs(5)"},
	"proto":      {Reason: "TCP: the server's saved connections are reset at a takeover, so that clients come back at once", Source: "nfs(5)"},
	"mountproto": {Reason: "the MOUNT protocol of v3 over TCP too: one transport to pass a firewall", Source: "nfs(5)"},
	"retrans":    {Reason: "after so many timeouts the kernel logs 'server not responding'; with hard it goes on for ever", Source: "nfs(5)"},
	"_netdev":    {Reason: "mounted once the network is up, unmounted before it goes", Source: "systemd.mount(5)"},
	"flock":      {Reason: "locks that hold on all clients, as programs expect", Source: "mount.lustre(8)"},
	"noatime":    {Reason: "reading writes nothing", Source: "mount(8)"},
	"nofail":     {Reason: "a brick that is away does not keep the client from booting", Source: "systemd.mount(5)"},
}

// fstabOptions are those only fstab needs, by type of file system. Lustre
// does not mount with nofail, which mount(8) hands on to it.
var fstabOptions = map[string][]string{"nfs": {"_netdev", "nofail"}, "lustre": {"_netdev"}}

// mountDoc is one mount as it is printed.
type mountDoc struct {
	Client  string        `json:"client,omitempty"` // "" if it is for any client
	Service string        `json:"service"`
	Source  string        `json:"source"`
	Path    string        `json:"path"`
	Version string        `json:"version"`
	Options []mountOption `json:"options"`
	Command []string      `json:"command"`
	Fstab   string        `json:"fstab"`
}

type mountOption struct {
	Option string `json:"option"`
	Reason string `json:"reason"`
	Source string `json:"source"`
}

func newMountOptionsCmd() *cobra.Command {
	var (
		client        string
		fstab, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "mount-options SPEC",
		Short: "Print how clients mount the brick, with the reason for each option",
		Long: `Print the mount commands (or the lines of /etc/fstab) of the clients in the
spec, with the reason for each option. A spec without clients gets the lines
any client would use. No host is reached.`,
		Example: `  mortar mount-options brick.yaml
  mortar mount-options brick.yaml --client c1 --fstab >> /etc/fstab`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := loadAnyDesign(args[0])
			if err != nil {
				return err
			}
			docs, err := mountDocs(d, client)
			if err != nil {
				return fail(exitBadInput, err)
			}
			w := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				return enc.Encode(docs)
			}
			return printMounts(w, docs, fstab)
		},
	}
	f := cmd.Flags()
	f.StringVar(&client, "client", "", "only this client of the spec")
	f.BoolVar(&fstab, "fstab", false, "print lines for /etc/fstab, reasons as comments")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func mountDocs(d *design.Design, client string) ([]mountDoc, error) {
	var names []string
	for _, c := range d.Spec.Clients {
		names = append(names, c.Name)
	}
	if client != "" && !slices.Contains(names, client) {
		if len(names) == 0 {
			return nil, fmt.Errorf("%s: no clients are listed: leave --client out, or list it under clients", d.Spec.File)
		}
		return nil, fmt.Errorf("%s: no client %s; choose one of %s", d.Spec.File, client, strings.Join(names, ", "))
	}
	mounts := d.Mounts
	if l := d.Lustre; l != nil {
		for _, n := range append(names, "")[:max(len(names), 1)] {
			mounts = append(mounts, design.ClientMount{Client: n, Service: l.FSName, Source: l.Source, Path: l.Mount, Version: "lustre", Options: l.MountOpts})
		}
	} else if len(names) == 0 {
		// What a client that says nothing about its mounts would get.
		s := *d.Spec
		s.Clients = []spec.Client{{}}
		any, err := design.Derive(&s)
		if err != nil {
			return nil, err
		}
		mounts = any.Mounts
	}
	docs := []mountDoc{}
	for _, m := range mounts {
		if client != "" && m.Client != client {
			continue
		}
		docs = append(docs, newMountDoc(d, m))
	}
	return docs, nil
}

func newMountDoc(d *design.Design, m design.ClientMount) mountDoc {
	doc := mountDoc{Client: m.Client, Service: m.Service, Source: m.Source, Path: m.Path, Version: m.Version, Options: []mountOption{}}
	all := slices.Clone(m.Options)
	kind := "nfs"
	if d.Lustre != nil {
		kind = "lustre"
	}
	for _, o := range fstabOptions[kind] {
		if !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	for _, o := range all {
		r := mountReason(d, o)
		doc.Options = append(doc.Options, mountOption{o, r.Reason, r.Source})
	}
	doc.Command = []string{"mount", "-t", kind, "-o", strings.Join(m.Options, ","), m.Source, m.Path}
	doc.Fstab = strings.Join([]string{fstabEscape(m.Source), fstabEscape(m.Path), kind, strings.Join(all, ","), "0", "0"}, " ")
	return doc
}

func mountReason(d *design.Design, option string) design.Setting {
	name, _, _ := strings.Cut(option, "=")
	for _, s := range d.SettingsOf("nfs") {
		if slices.Contains(strings.Split(s.Name, ","), name) {
			return s
		}
	}
	if r, ok := mountReasons[name]; ok {
		return r
	}
	return design.Setting{Reason: "set in the spec", Source: d.Spec.File}
}

// fstabEscape writes a field as fstab(5) wants it.
func fstabEscape(s string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`, "#", `\043`).Replace(s)
}

// shellQuote makes a word that a POSIX shell takes as it is.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func printMounts(w io.Writer, docs []mountDoc, fstab bool) error {
	var b strings.Builder
	told := map[string]bool{}
	var reasons []mountOption
	last := "\x00"
	for _, m := range docs {
		if m.Client != last {
			if last != "\x00" {
				b.WriteByte('\n')
			}
			last = m.Client
			who := m.Client
			if who == "" {
				who = "any client"
			}
			fmt.Fprintf(&b, "# %s\n", who)
		}
		if fstab {
			fmt.Fprintln(&b, m.Fstab)
		} else {
			words := make([]string, len(m.Command))
			for i, a := range m.Command {
				words[i] = shellQuote(a)
			}
			fmt.Fprintf(&b, "mkdir -p %s\n%s\n", shellQuote(m.Path), strings.Join(words, " "))
		}
		for _, o := range m.Options {
			if told[o.Option] || !fstab && slices.Contains(fstabOptions["nfs"], o.Option) {
				continue
			}
			told[o.Option] = true
			reasons = append(reasons, o)
		}
	}
	fmt.Fprint(&b, "\n# why\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, o := range reasons {
		fmt.Fprintf(tw, "# %s\t%s (%s)\n", o.Option, o.Reason, o.Source)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
