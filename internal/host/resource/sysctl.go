package resource

import (
	"cmp"
	"path"
	"strings"

	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// Setting is one kernel value with the reason for it.
type Setting struct {
	Name, Value, Reason string
}

// Sysctl is a file under /etc/sysctl.d and the live values it names.
type Sysctl struct {
	Path     string
	Settings []Setting
}

func (s *Sysctl) Identity() (kind, id string) { return "sysctl", s.Path }

// Diff compares the file and /proc/sys. A key whose module is not loaded has
// no live value yet; the file sets it when systemd-sysctl(8) or udev does.
func (s *Sysctl) Diff(sys Look) ([]Action, error) {
	var b strings.Builder
	b.WriteString(Header)
	var live []string
	for _, v := range s.Settings {
		if v.Reason != "" {
			b.WriteString(Comment(v.Reason))
		}
		b.WriteString(v.Name + " = " + v.Value + "\n")
		got, there := sys.File("/proc/sys/" + strings.ReplaceAll(v.Name, ".", "/"))
		if there && strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(v.Value), " ") {
			live = append(live, v.Name+"="+v.Value)
		}
	}
	as := sys.Want(&TextFile{Path: s.Path, Content: []byte(b.String())})
	if len(live) > 0 {
		as = append(as, Action{
			Title: "set " + strings.Join(live, ", "),
			Cmd:   append([]string{"sysctl", "--quiet", "--write"}, live...),
		})
	}
	return as, nil
}

// Modules are kernel modules loaded at boot and now, with their options.
type Modules struct {
	Names   []string
	Options []Setting // Name is module.parameter
}

func (m *Modules) Identity() (kind, id string) {
	return "modules", cmp.Or(strings.Join(m.Names, " "), "options")
}

// Diff compares modules-load.d(5), modprobe.d(5), what is loaded, and the
// live value of parameters that can be changed.
func (m *Modules) Diff(sys Look) ([]Action, error) {
	var as []Action
	if len(m.Options) > 0 {
		var b strings.Builder
		b.WriteString(Header)
		for _, o := range m.Options {
			mod, par, ok := strings.Cut(o.Name, ".")
			if !ok {
				continue
			}
			b.WriteString(Comment(o.Reason) + "options " + mod + " " + par + "=" + o.Value + "\n")
		}
		as = sys.Want(&TextFile{Path: "/etc/modprobe.d/mortar.conf", Content: []byte(b.String())})
	}
	if len(m.Names) > 0 {
		as = append(as, sys.Want(&TextFile{Path: "/etc/modules-load.d/mortar.conf", Content: []byte(Header + strings.Join(m.Names, "\n") + "\n")})...)
	}
	var load []string
	for _, n := range m.Names {
		// Built-in modules without parameters have no directory in
		// /sys/module; modprobe of one succeeds and changes nothing, so it is
		// looked up in modules.builtin too.
		if !sys.Exists("/sys/module/"+strings.ReplaceAll(n, "-", "_")) && !builtin(sys, n) {
			load = append(load, n)
		}
	}
	if len(load) > 0 {
		as = append(as, Action{Title: "load " + strings.Join(load, " "), Cmd: append([]string{"modprobe", "--all"}, load...)})
	}
	for _, o := range m.Options {
		mod, par, _ := strings.Cut(o.Name, ".")
		p := "/sys/module/" + mod + "/parameters/" + par
		st, err := sys.Stat(p)
		if err != nil || st.Mode&0o200 == 0 {
			continue // not loaded, or fixed until it is loaded again
		}
		if o.Name == "sunrpc.pool_mode" && nfsdRuns(sys) {
			continue // EBUSY: status says that it waits for the next load
		}
		got := sys.Text(p)
		if got != o.Value && !sameBool(got, o.Value) {
			as = append(as, Action{Title: "set " + o.Name + "=" + o.Value, Why: o.Reason, Cmd: []string{"tee", p}, Stdin: []byte(o.Value + "\n")})
		}
	}
	return as, nil
}

// nfsdRuns says whether an nfsd has threads, the host's or that of a service with a namespace.
func nfsdRuns(sys Look) bool {
	for _, f := range append(sys.Files(nfs.NFSDDir("*")+"/threads"), nfs.NFSDDir("")+"/threads") {
		if t := sys.Text(f); t != "" && t != "0" {
			return true
		}
	}
	return false
}

func sameBool(a, b string) bool {
	t := func(s string) string {
		switch s {
		case "1", "y", "Y":
			return "Y"
		case "0", "n", "N":
			return "N"
		}
		return s
	}
	return t(a) == t(b)
}

func builtin(sys Look, name string) bool {
	all, _ := sys.File(path.Join("/lib/modules", sys.Text("/proc/sys/kernel/osrelease"), "modules.builtin"))
	return strings.Contains(all, "/"+strings.ReplaceAll(name, "_", "-")+".ko") || strings.Contains(all, "/"+name+".ko")
}
