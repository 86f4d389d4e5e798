package ocf

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// A config says by its keys which kinds it is of, in exactly one way.
func TestKindOfConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{MDStorage: &mdraid.MDStorage{}, NFSService: &nfs.NFSService{}}, ""},
		{Config{LUNStorage: &lun.LUNStorage{}, LustreService: &lustre.LustreService{}}, ""},
		{Config{NFSService: &nfs.NFSService{}}, "0 kinds of storage: exactly one of the keys arrays, luns is needed"},
		{Config{MDStorage: &mdraid.MDStorage{}, LUNStorage: &lun.LUNStorage{}, NFSService: &nfs.NFSService{}}, "2 kinds of storage"},
		{Config{MDStorage: &mdraid.MDStorage{}}, "0 kinds of service: exactly one of the keys nfs, targets is needed"},
	} {
		_, err := newService(&c.config, newShared(t).hosts["nfs1"], "nfs1")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// TestOnlyTheTableAsksForKinds looks for code that asks which kind a service has: a section
// of the config or one of its keys outside of kinds.go, or a kind's type taken out of its
// interface.
func TestOnlyTheTableAsksForKinds(t *testing.T) {
	of := map[string]string{} // key → section
	for i := range reflect.TypeFor[Config]().NumField() {
		f := reflect.TypeFor[Config]().Field(i)
		if !f.Anonymous || f.Type.Kind() != reflect.Pointer {
			continue // of every kind
		}
		of[f.Name] = f.Name
		for j := range f.Type.Elem().NumField() {
			of[f.Type.Elem().Field(j).Name] = f.Name
		}
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	seen := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if section := of[n.Sel.Name]; section != "" && isConfig(n.X) {
					seen++
					if name != "kinds.go" {
						t.Errorf("%s: %s is of section %s: ask the kind", set.Position(n.Pos()), n.Sel.Name, section)
					}
				}
			case *ast.TypeAssertExpr:
				if star, ok := n.Type.(*ast.StarExpr); ok {
					if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Kind" {
						t.Errorf("%s: the kind is taken out of its interface", set.Position(n.Pos()))
					}
				}
			}
			return true
		})
	}
	if seen < 10 {
		t.Errorf("only %d uses of sections found: does the test still see them?", seen)
	}
}

// isConfig says whether an expression is a *Config: s.cfg, c, fresh.
func isConfig(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "cfg"
	case *ast.Ident:
		return slices.Contains([]string{"cfg", "c", "fresh"}, e.Name)
	}
	return false
}

// Files of builds before there were kinds are read and mean the same.
func TestConfigOfEarlierBuilds(t *testing.T) {
	const src = `{"service":"home","arrays":[{"name":"r0","uuid":"0f1e2d3c:4b5a6978:8796a5b4:c3d2e1f0","members":["/dev/mapper/d0"],"need":1}],
"vg":"vg-a","lv":"data","fs_uuid":"11112222-3333-4444-5555-666677778888","mount_point":"/srv/home","mount_opts":["noatime"],"state_dir":"/srv/home/.nfs",
"nfs":{"threads":8,"versions":["4.2"],"lease":30,"grace":30,"lock_grace":30,"scope":"s"},"exports":[{"dir":"/srv/home","clients":"*","fsid":"1","options":["rw"]}],
"address":"10.0.0.9/24","namespace":"n","nodes":{"nfs1":"10.0.0.1"},"rings":{"nfs1":["10.1.0.1"]},"fences":["10.2.0.1"],"system_id":"at-rest",
"cache":"/etc/mortar/cache-home.json","dirty_degraded":"start"}`
	c, err := Parse("c.json", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Service: "home", MDStorage: &mdraid.MDStorage{Arrays: []mdraid.Array{{Name: "r0", UUID: "0f1e2d3c:4b5a6978:8796a5b4:c3d2e1f0", Members: []string{"/dev/mapper/d0"}, Need: 1}}, DirtyDegraded: "start"},
		VolumeGroup: VolumeGroup{"vg-a", "data", "at-rest"}, Cache: "/etc/mortar/cache-home.json",
		NFSService: &nfs.NFSService{FSUUID: "11112222-3333-4444-5555-666677778888", MountPoint: "/srv/home", MountOpts: []string{"noatime"}, StateDir: "/srv/home/.nfs", StateImage: "",
			NFS: nfs.NFS{Threads: 8, Versions: []string{"4.2"}, Lease: 30, Grace: 30, LockGrace: 30, Scope: "s", RDMA: 0}, Exports: []nfs.Export{{Dir: "/srv/home", Clients: "*", FSID: "1", Options: []string{"rw"}}}, Address: "10.0.0.9/24", Namespace: "n"},
		Nodes: map[string]string{"nfs1": "10.0.0.1"}, Rings: map[string][]string{"nfs1": {"10.1.0.1"}}, Fences: []string{"10.2.0.1"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
}

// What cannot be served safely is refused before anything reads a host.
func TestConfigOfKinds(t *testing.T) {
	at := func(on, serve int, edit func(*Config)) func(*testing.T) error {
		return func(t *testing.T) error {
			_, c := brick(t, storageSpecimens[on], serviceSpecimens[serve])
			edit(c)
			return c.check()
		}
	}
	const md, luns, bare, nfs, lustre = onDisks, onLUNs, onBareLUNs, 0, 2
	for name, c := range map[string]struct {
		check func(*testing.T) error
		want  string
	}{
		"arrays without a group":    {at(md, nfs, func(c *Config) { c.VolumeGroup = VolumeGroup{} }), "two servers that write to one array destroy it"},
		"LUNs without reservations": {at(bare, nfs, func(c *Config) { c.Reservations = nil }), "nothing else keeps the partner from writing"},
		"a LUN too many":            {at(bare, nfs, func(c *Config) { c.LUNs = append(c.LUNs, lun.LUN{Name: "x", WWID: "3x", Size: 512}) }), "without a volume group each of"},
		"a target on no LUN":        {at(bare, lustre, func(c *Config) { c.Targets[1].Volume = "x" }), "without a volume group each of"},
		"no targets":                {at(bare, lustre, func(c *Config) { c.Targets = nil }), "targets is empty"},
		"no WWID":                   {at(luns, nfs, func(c *Config) { c.LUNs[0].WWID = "" }), "the WWID that multipath -ll prints"},
		"one LUN twice":             {at(luns, nfs, func(c *Config) { c.LUNs[1].WWID = c.LUNs[0].WWID }), "name or WWID of another"},
		"no size":                   {at(luns, nfs, func(c *Config) { c.LUNs[0].Size = 0 }), "size 0"},
		"no LUNs":                   {at(luns, nfs, func(c *Config) { c.LUNs = nil }), "luns is empty"},
		"group without a name":      {at(bare, nfs, func(c *Config) { c.SystemID = "x" }), "vg is empty"},
		"bare with a cache":         {at(bare, nfs, func(c *Config) { c.Cache = "/x" }), "a cache is in front of one logical volume"},
		"targets with a cache":      {at(luns, lustre, func(c *Config) { c.Cache = "/x" }), "have no cache"},
		"OST before MGS":            {at(luns, lustre, func(c *Config) { slices.Reverse(c.Targets) }), "in this order"},
		"one target twice":          {at(luns, lustre, func(c *Config) { c.Targets[1] = c.Targets[0] }), "of another one"},
		"evicting clients":          {at(luns, lustre, func(c *Config) { c.Targets[1].MountOpts = []string{"abort_recov"} }), "takes the service or clients' data away"},
		"servers without an MGS":    {at(bare, lustre, func(c *Config) { c.Servers = []string{"10.20.0.13@tcp"} }), "the service that has the MGS"},
		"servers by name":           {at(luns, lustre, func(c *Config) { c.Servers = []string{"oss01"} }), "is no NID"},
		"long fsname":               {at(luns, lustre, func(c *Config) { c.FSName = "scratchspace" }), "1 to 8 letters"},
		"index":                     {at(luns, lustre, func(c *Config) { c.Targets[1].Index = 1 << 16 }), "0 to 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.check(t); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
