package resource

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
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

// Kind is "sysctl".
func (s *Sysctl) Kind() string { return "sysctl" }

// ID is the file's path.
func (s *Sysctl) ID() string { return s.Path }

// Diff compares the file and /proc/sys. A key whose module is not loaded has
// no live value yet; the file sets it when systemd-sysctl(8) or udev does.
func (s *Sysctl) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	var b strings.Builder
	b.WriteString(Header)
	var live []string
	for _, v := range s.Settings {
		if v.Reason != "" {
			b.WriteString(comment(v.Reason))
		}
		b.WriteString(v.Name + " = " + v.Value + "\n")
		got, err := sys.ReadFile("/proc/sys/" + strings.ReplaceAll(v.Name, ".", "/"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if strings.Join(strings.Fields(string(got)), " ") != strings.Join(strings.Fields(v.Value), " ") {
			live = append(live, v.Name+"="+v.Value)
		}
	}
	f := TextFile{Path: s.Path, Content: []byte(b.String())}
	as, err := f.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
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

// Kind is "modules".
func (m *Modules) Kind() string { return "modules" }

// ID is the list of modules to load; without any, there are options only.
func (m *Modules) ID() string { return cmp.Or(strings.Join(m.Names, " "), "options") }

// Diff compares modules-load.d(5), modprobe.d(5), what is loaded, and the
// live value of parameters that can be changed.
func (m *Modules) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	var as []Action
	add := func(f TextFile) error {
		a, err := f.Diff(ctx, sys)
		as = append(as, a...)
		return err
	}
	if len(m.Options) > 0 {
		var b strings.Builder
		b.WriteString(Header)
		for _, o := range m.Options {
			mod, par, ok := strings.Cut(o.Name, ".")
			if !ok {
				continue
			}
			b.WriteString(comment(o.Reason) + "options " + mod + " " + par + "=" + o.Value + "\n")
		}
		if err := add(TextFile{Path: "/etc/modprobe.d/mortar.conf", Content: []byte(b.String())}); err != nil {
			return nil, err
		}
	}
	if len(m.Names) > 0 {
		if err := add(TextFile{
			Path: "/etc/modules-load.d/mortar.conf", Content: []byte(Header + strings.Join(m.Names, "\n") + "\n"),
		}); err != nil {
			return nil, err
		}
	}
	var load []string
	for _, n := range m.Names {
		// Built-in modules without parameters have no directory in
		// /sys/module; modprobe of one succeeds and changes nothing, so it is
		// looked up in modules.builtin too.
		ok, err := exists(sys, "/sys/module/"+strings.ReplaceAll(n, "-", "_"))
		if err != nil {
			return nil, err
		}
		if !ok && !builtin(sys, n) {
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
		got, err := readTrim(sys, p)
		if err != nil {
			return nil, err
		}
		if got != o.Value && !sameBool(got, o.Value) {
			as = append(as, Action{Title: "set " + o.Name + "=" + o.Value, Why: o.Reason, Cmd: []string{"tee", p}, Stdin: []byte(o.Value + "\n")})
		}
	}
	return as, nil
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

func builtin(sys Sys, name string) bool {
	rel, err := readTrim(sys, "/proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	b, err := sys.ReadFile("/lib/modules/" + rel + "/modules.builtin")
	return err == nil && strings.Contains(string(b), "/"+strings.ReplaceAll(name, "_", "-")+".ko") ||
		err == nil && strings.Contains(string(b), "/"+name+".ko")
}
