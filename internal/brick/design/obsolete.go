package design

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// obsoleteMount says whether a mount option of XFS is gone from current
// kernels, and what took its place.
//
// Source: xfs(5); kernel: admin-guide/xfs, removed mount options.
func obsoleteMount(option string) (Translation, bool) {
	name, _, _ := strings.Cut(option, "=")
	const source = "kernel: admin-guide/xfs, Removed Mount Options"
	switch name {
	case "nobarrier", "barrier":
		return Translation{Old: option, Why: "removed in Linux 4.19: cache flushes are always sent, and cost nothing where the array's cache has a battery. Without them a power cut can cost the file system", Source: source}, true
	case "attr2", "noattr2":
		return Translation{Old: option, Why: "its format has been the only one since XFS v5 (2013); deprecated in Linux 5.10, removed in 6.18", Source: source}, true
	case "ikeep", "noikeep", "delaylog", "nodelaylog":
		return Translation{Old: option, Why: "there is only one way left", Source: source}, true
	}
	return Translation{}, false
}

var conf = regexp.MustCompile(`^([A-Za-z0-9]{1,8})(-(?:OST|MDT)[0-9a-fA-F]{4})?\.(osc|mdc|llite|lov|ost|mdt|mdd|lod|osp|sys)\.(.+)$`)

// modernParam turns a setting in the form of lctl conf_param
// (testfs.osc.max_dirty_mb=256) into that of lctl set_param -P.
// Source: lctl-conf_param(8), lctl-set_param(8).
func modernParam(p string) (now string, old bool) {
	m := conf.FindStringSubmatch(p)
	if m == nil || m[1] == m[3] {
		return p, false
	}
	if m[3] == "sys" {
		return m[4], true
	}
	return m[3] + "." + m[1] + m[2] + "-*." + m[4], true
}

// translate lists what of the source papers no longer exists. What the spec
// itself has is always listed, the rest where the brick is like theirs.
func (d builder) translate() {
	s := d.Spec
	for i, o := range s.Filesystem.Mount {
		if t, gone := obsoleteMount(o); gone {
			t.Line, t.Col = s.Pos(fmt.Sprintf("filesystem.mount[%d]", i))
			d.Translations = append(d.Translations, t)
		}
	}
	if s.Lustre != nil {
		for i, p := range s.Lustre.Params {
			if now, old := modernParam(p); old {
				line, col := s.Pos(fmt.Sprintf("lustre.params[%d]", i))
				d.Translations = append(d.Translations, Translation{Old: "lctl conf_param " + p, New: "lctl set_param -P " + now,
					Why: "conf_param is obsolete; set_param -P names a setting as lctl get_param prints it", Source: "lctl-conf_param(8)", Line: line, Col: col})
			}
		}
	}
	for _, f := range d.rows("past") {
		d.Translations = append(d.Translations, Translation{Old: f[0], New: f[1], Why: f[2], Source: f[3]})
	}
}

// advise says what a person does with their hands, where the spec tells of
// cards and arrays.
func (d builder) advise() {
	for _, f := range d.rows("advice") {
		d.Advice = append(d.Advice, Advice{Server: strings.TrimPrefix(f[0], "-"), Source: f[1], Text: f[2]})
	}
}

func (t tuning) ClientCards(v spec.Server) []spec.Card {
	i := slices.IndexFunc(v.PCI, func(k spec.Card) bool { return k.Kind == "hca" || k.Kind == "nic" })
	if i < 0 {
		return nil
	}
	return v.PCI[i : i+1]
}

func (t tuning) PathsFrom(a Array, server string) int { return t.PathsTo(&a, server) }

// Swap is for xfs_repair.
func (t tuning) Swap() spec.Bytes { return t.Capacity.LUNs / (2 * spec.TiB) * spec.GiB }

// cardGBs is what a card's lanes of PCI Express carry, in 10^9 bytes a second after
// encoding. Source: PCI Express Base Specification.
func cardGBs(k spec.Card) float64 {
	return float64(k.Lanes) * map[int]float64{1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}[k.Generation]
}
