package plan

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/spec"
)

func offline(t *testing.T, name string) (*design.Design, *Plan, string) {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(name, src)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Offline(t.Context(), d)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var b bytes.Buffer
	if err := p.Show(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	return d, p, b.String()
}

// Every example has a plan for blank hosts, on every host, and no secret in it.
func TestOfflineExamples(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d, p, text := offline(t, f)
		hosts := map[string]bool{}
		for _, s := range p.Pending() {
			hosts[s.Host] = true
		}
		for _, v := range d.Spec.Servers {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		for _, v := range d.Spec.Clients {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		if strings.Contains(text, "content of ") {
			t.Errorf("%s: a secret is shown", f)
		}
	}
}

// inOrder says that text has the parts, in this order.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		i := strings.Index(text, p)
		if i < 0 {
			t.Fatalf("not there, or not in order: %s", p)
		}
		text = text[i+len(p):]
	}
}

func TestOfflineNFSHA(t *testing.T) {
	_, _, text := offline(t, "nfs-ha.yaml")
	inOrder(t, text, "\nnfs1\n"[1:], "mdadm --create /dev/md/brick1-r0", "lvm vgcreate", "lvm lvcreate", "mkfs.xfs -L home", "cibadmin")
}
