package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The plan of a profile has the layers of the brick, and counts their measurements.
func TestPlanOfProfile(t *testing.T) {
	for _, c := range []struct {
		example string
		survey  bool
		want    string
		layers  []string
	}{
		{"nfs-ha", false, "disks 8, raid 8, volume 8, filesystem 6, network 8, nfs-one 6: 44", nil},
		{"nfs-ha", true, "disks 50, raid 50, volume 50, filesystem 6, network 8, nfs-one 6: 170", nil},
		{"nss7.4-ha", false, "disks 8, volume 8, filesystem 6, verbs 2, network 8, nfs-one 6: 38", nil},
		{"lustre-small over RoCE", true, "disks 50, raid 50, volume 50, osts 36, verbs 2, network 8, lnet 12, lustre-one 6: 214", nil},
		{"lustre-small", true, "disks 50, raid 50, volume 50, osts 36, network 8, lnet 12, lustre-one 6: 212", nil},
		{"lustre-small", true, "network 8, lnet 12: 20", []string{"lnet", "network"}},
	} {
		name, roce := strings.CutSuffix(c.example, " over RoCE")
		text, err := os.ReadFile("../../../examples/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if roce {
			text = bytes.Replace(text, []byte("lnet: tcp"), []byte("lnet: o2ib"), 1)
		}
		s, err := spec.Parse("brick.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.New(s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := planOf(d, &Suite{Name: "profile", Cold: ColdDrop, Repeat: 1}, Options{Profile: true, Survey: c.survey, Layers: c.layers})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range p.Layers {
			got = append(got, fmt.Sprintf("%s %d", l.Layer, l.Measurements))
		}
		if text := fmt.Sprintf("%s: %d", strings.Join(got, ", "), p.Measurements); text != c.want {
			t.Errorf("%s, survey %v: %s", c.example, c.survey, text)
		}
	}
}

// A run refuses a layer that the brick has not before it reaches a host, as its plan does.
func TestUnknownLayerIsRefused(t *testing.T) {
	text, err := os.ReadFile("../../../examples/nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	suite, opt := &Suite{Name: "profile", Cold: ColdDrop, Repeat: 1}, Options{Profile: true, Layers: []string{"network", "lnet"}, Dir: t.TempDir()}
	unfit := (*Unfit)(nil)
	if _, err := planOf(d, suite, opt); !errors.As(err, &unfit) {
		t.Error(err)
	}
	if r, err := Run(t.Context(), Env{Design: d}, suite, opt); r != nil || !errors.As(err, &unfit) {
		t.Error(r, err)
	}
}
