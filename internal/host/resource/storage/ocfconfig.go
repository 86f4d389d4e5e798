package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// OCFConfig is the file that tells the resource agent what a service
// consists of. The members of the arrays are filled in on the host, because
// only it knows their devices.
type OCFConfig struct {
	Path     string
	Template json.RawMessage // ocf.Config without members
	Members  [][]DiskRef     // of each array in the template, in order
	LUNs     []DiskRef       `json:",omitempty"` // those of the template, in order
	Agent    string          // program that writes it once a service runs
	// Unexport are directories that are not to be exported any more.
	Unexport []string `json:",omitempty"`
}

func (o *OCFConfig) Identity() (kind, id string) { return "ocf-config", o.Path }

// Diff resolves the members and compares the file.
func (o *OCFConfig) Diff(sys resource.Look) ([]resource.Action, error) {
	var cfg map[string]any
	if err := json.Unmarshal(o.Template, &cfg); err != nil {
		return nil, err
	}
	arrays, _ := cfg["arrays"].([]any)
	if len(arrays) != len(o.Members) {
		return nil, fmt.Errorf("%s: %d arrays, members of %d", o.Path, len(arrays), len(o.Members))
	}
	for i, a := range arrays {
		if err := o.members(sys, a, o.Members[i]); err != nil {
			return nil, fmt.Errorf("%s: array %d: %w", o.Path, i, err)
		}
	}
	if err := o.luns(sys, cfg); err != nil {
		return nil, err
	}
	// Keys come out sorted, so the text is the same every time.
	b, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return nil, err
	}
	f := resource.TextFile{Path: o.Path, Content: append(b, '\n'), Mode: 0o600, Why: "read by the resource agent ocf:mortar:service"}
	as := sys.Want(&f)
	old, there := sys.File(o.Path)
	if len(as) == 0 || !there { // without a file no service runs that could fail
		return as, nil
	}
	var was map[string]any
	known := json.Unmarshal([]byte(old), &was) == nil
	if lost := o.lost(was, cfg); len(lost) > 0 {
		return nil, resource.Refuse("service-loses", resource.With{"config": o.Path, "lost": lost})
	}
	if known && was["reservations"] != nil && cfg["reservations"] == nil {
		return nil, resource.Refuse("service-reservations", resource.With{"config": o.Path})
	}
	if known && reflect.DeepEqual(was["exports"], cfg["exports"]) {
		return as, nil
	}
	// A service that cannot export what its configuration says starts nowhere: the
	// agent tries that before it writes.
	return []resource.Action{{
		Title: "configure " + o.Path, Why: "the exports change; this server tries them first",
		Cmd: []string{o.Agent, "ocf", "configure", "--config", o.Path}, Stdin: f.Content, Seconds: 60,
	}}, nil
}

// parts are the lists of the configuration whose entries hold data or serve clients, with the
// keys by which entries are the same.
var parts = []struct {
	what, list string
	keys       []string
}{
	{"array", "arrays", []string{"name", "uuid"}}, {"LUN", "luns", []string{"wwid"}},
	{"target", "targets", []string{"kind", "index"}}, {"export", "exports", []string{"dir", "clients"}},
}

// lost names what the configuration was has and the configuration now lacks.
func (o *OCFConfig) lost(was, now map[string]any) []string {
	var out []string
	for _, p := range parts {
		have := map[string]bool{}
		names := func(cfg map[string]any, each func(name string, entry map[string]any)) {
			list, _ := cfg[p.list].([]any)
			for _, x := range list {
				entry, _ := x.(map[string]any)
				name := p.what
				for _, k := range p.keys {
					name += fmt.Sprintf(" %v", entry[k])
				}
				each(name, entry)
			}
		}
		names(now, func(name string, _ map[string]any) { have[name] = true })
		names(was, func(name string, entry map[string]any) {
			if dir, _ := entry["dir"].(string); !have[name] && !slices.Contains(o.Unexport, dir) {
				out = append(out, name)
			}
		})
	}
	return out
}

// members fills in the devices of an array, their enclosures and serial numbers, and which of
// them are listed as failed.
func (o *OCFConfig) members(sys resource.Look, array any, refs []DiskRef) error {
	fs := resolve(sys, refs)
	var devs, enclosures, numbers, failed []string
	for _, f := range fs {
		devs, enclosures, numbers = append(devs, f.stable()), append(enclosures, f.Ref.Enclosure), append(numbers, f.Ref.Serial)
		if f.Ref.Failed {
			failed = append(failed, f.Ref.Serial)
		}
	}
	m, ok := array.(map[string]any)
	if !ok {
		return errors.New("it is no object")
	}
	m["members"], m["enclosures"], m["serials"] = devs, enclosures, numbers
	if failed != nil {
		m["failed"] = failed
	}
	return nil
}

// luns fills in the size of each LUN, which the array has rounded.
func (o *OCFConfig) luns(sys resource.Look, cfg map[string]any) error {
	luns, _ := cfg["luns"].([]any)
	if len(luns) != len(o.LUNs) {
		return fmt.Errorf("%s: %d LUNs, references to %d", o.Path, len(luns), len(o.LUNs))
	}
	fs := resolve(sys, o.LUNs)
	for i, l := range luns {
		m, ok := l.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: LUN %d is no object", o.Path, i)
		}
		m["size"] = fs[i].Size
		m["wwid"] = fs[i].mapName()
	}
	return nil
}
