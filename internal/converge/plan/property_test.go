package plan

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// eachExample calls f with the plan of each example for blank hosts.
func eachExample(t *testing.T, f func(t *testing.T, d *design.Design, p *Plan)) {
	t.Helper()
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			d, p, _ := offline(t, name)
			f(t, d, p)
		})
	}
}

// files tells whether a step changes files only.
func files(as []resource.Action) bool {
	return len(as) > 0 && !slices.ContainsFunc(as, func(a resource.Action) bool { return len(a.Cmd) > 0 || a.File == nil })
}

// carryOut does to a host on paper what an action does to a file.
func carryOut(h *resource.Paper, f *resource.File) {
	switch {
	case f.Remove:
		delete(h.Files, f.Path)
	case f.Mkdir:
		h.Info[f.Path] = resource.FileInfo{Mode: f.Mode, IsDir: true}
	case f.Symlink != "":
		h.Links[f.Path], h.Files[f.Symlink] = f.Symlink, ""
	default:
		h.Files[f.Path], h.Info[f.Path] = string(f.Content), resource.FileInfo{Mode: f.Mode}
	}
}

// What a step writes is what the next look wants: of steps whose actions are files, a second
// diff is empty, also after all other steps have written theirs. As in an apply, each is
// compared right before it is carried out.
func TestSecondDiffIsEmpty(t *testing.T) {
	eachExample(t, func(t *testing.T, d *design.Design, p *Plan) {
		hosts := map[string]*resource.Paper{}
		for _, s := range p.Steps {
			h := hosts[s.Host]
			if h == nil {
				h = blankHost(s.Host, named(d))
				h.Info, h.Links = map[string]resource.FileInfo{}, map[string]string{}
				h.Files["/proc/sys/kernel/osrelease"] = "6\n"
				hosts[s.Host] = h
			}
			if files(s.Actions) {
				as, err := resource.Diff(t.Context(), h, s.Resource)
				if err != nil {
					t.Fatalf("%s: %s: %v", s.Host, s.Title, err)
				}
				for _, a := range as {
					carryOut(h, a.File)
				}
			}
		}
		looked := 0
		for _, s := range p.Steps {
			if !files(s.Actions) {
				continue
			}
			looked++
			if as, err := resource.Diff(t.Context(), hosts[s.Host], s.Resource); err != nil || len(as) > 0 {
				t.Errorf("%s: %s: %v %v", s.Host, s.Title, as, err)
			}
		}
		if looked < 5 {
			t.Errorf("only %d steps write files", looked)
		}
	})
}

// Each action that takes or wipes disks names them, by serial numbers of the design.
func TestDestroyingActionsNameSerials(t *testing.T) {
	eachExample(t, func(t *testing.T, d *design.Design, p *Plan) {
		d = named(d)
		var known []string
		for _, k := range d.Disks {
			known = append(known, k.Serial)
		}
		for _, a := range d.Arrays {
			for _, l := range a.LUNs {
				known = append(known, l.WWN)
			}
		}
		taken := 0
		for _, s := range p.Steps {
			for _, a := range s.Actions {
				line := strings.Join(a.Cmd, " ")
				takes := strings.HasPrefix(line, "wipefs --all") || strings.Contains(line, "mdadm --create") ||
					strings.HasPrefix(line, "lvm vgcreate") && strings.Contains(line, " /dev/mapper/")
				if takes && (len(a.Destroys) == 0 || len(a.Blank) == 0 && !strings.HasPrefix(line, "wipefs")) {
					t.Errorf("%s: %s names no serial, or does not look: %s", s.Host, s.Title, line)
				}
				for _, serial := range a.Destroys {
					taken++
					if !slices.Contains(known, serial) {
						t.Errorf("%s: %s destroys %s, which is no disk of the design", s.Host, s.Title, serial)
					}
				}
				if err := a.Permitted(nil); len(a.Destroys) > 0 && len(a.Blank) == 0 && err == nil {
					t.Errorf("%s: %s needs no permission", s.Host, s.Title)
				}
			}
		}
		if taken == 0 {
			t.Error("the plan takes no disk")
		}
	})
}

// No action comes before what it needs: stages are in their order, and on a host no command
// names an array, a volume or a unit of the brick before an action has made it.
func TestActionsComeAfterWhatTheyNeed(t *testing.T) {
	eachExample(t, func(t *testing.T, _ *design.Design, p *Plan) {
		made := map[string]bool{}   // host and device, volume group or unit
		ours := map[string]string{} // what is made anywhere, and by which step
		for pass := range 2 {
			last := 0
			for _, s := range p.Steps {
				if r := rank(s.Stage); r < last {
					t.Fatalf("stage %s comes too late", s.Stage)
				} else {
					last = r
				}
				for _, a := range s.Actions {
					if pass == 1 {
						for _, arg := range a.Cmd {
							if by := ours[s.Host+" "+arg]; by != "" && !made[s.Host+" "+arg] && !slices.Contains(makes(a), arg) {
								t.Errorf("%s: %s needs %s, which %s makes later", s.Host, s.Title, arg, by)
							}
						}
					}
					for _, m := range makes(a) {
						ours[s.Host+" "+m] = s.Title
						made[s.Host+" "+m] = pass == 1
					}
				}
			}
		}
		if len(ours) == 0 {
			t.Error("the plan makes nothing")
		}
	})
}

// makes are the devices, volume groups and units that an action makes.
func makes(a resource.Action) []string {
	after := func(word string) string {
		if i := slices.Index(a.Cmd, word); i >= 0 && i+1 < len(a.Cmd) {
			return a.Cmd[i+1]
		}
		return ""
	}
	line := strings.Join(a.Cmd, " ")
	switch {
	case strings.Contains(line, "mdadm --create"):
		return []string{after("--create")}
	case strings.HasPrefix(line, "lvm lvcreate"):
		vg := a.Cmd[len(a.Cmd)-1]
		return []string{"/dev/" + vg + "/" + after("--name"), vg + "/" + after("--name")}
	case strings.HasPrefix(line, "lvm vgcreate"):
		i := slices.IndexFunc(a.Cmd, func(w string) bool { return w == "--devices" })
		return []string{a.Cmd[i+2]}
	case a.File != nil && strings.HasPrefix(a.File.Path, "/etc/systemd/system/mortar-") && len(a.Cmd) == 0:
		return []string{path.Base(a.File.Path)}
	}
	return nil
}

// A brick that has grown has all that it had, on the same hosts and in the same order.
func TestPlanOfABiggerBrickContainsTheSmaller(t *testing.T) {
	steps := func(d *design.Design) (out []string) {
		all, err := Desired(d, Facts{}, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			out = append(out, s.Stage+": "+s.Host+": "+s.named())
		}
		return out
	}
	big := steps(grownDesign(t))
	at := 0
	for _, s := range steps(testDesign(t, "nfs-ha")) {
		i := slices.Index(big[at:], s)
		if i < 0 {
			t.Fatalf("the bigger brick has no %s, or not in order", s)
		}
		at += i + 1
	}
	if len(big) <= at-1 {
		t.Error("the bigger brick has no more")
	}
}
