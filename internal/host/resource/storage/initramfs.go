package storage

import (
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Initramfs keeps the initial RAM disks of every installed kernel from the
// brick's arrays. A server that boots after it was fenced sees all shared disks
// while its partner writes to them, and Debian's images assemble whatever they
// see: the hook of mdadm copies /etc/mdadm/mdadm.conf and nothing of
// mdadm.conf.d, and if that file names no array, it adds a line for each array
// that is visible.
//
// A hook of ours writes the lines into each image that is built, also when a
// kernel is installed later. What counts is what is in the images: each is read
// to its end, every time.
type Initramfs struct {
	Arrays []string // md UUIDs that the image leaves alone
	Files  []string // that are in the image as they are on the host
}

func (i *Initramfs) Identity() (kind, id string) { return "initramfs", "initrd" }

// Diff reads the image of each kernel. A host that boots without such images
// has only the hook.
func (i *Initramfs) Diff(sys resource.Look) ([]resource.Action, error) {
	d := sys.Distro()
	hook := resource.TextFile{
		Path: d.Initrd.Hook, Mode: d.Initrd.HookMode, Content: []byte(i.hook(d)),
		Why: "each initial RAM disk that is built from now on leaves the brick's arrays alone",
	}
	as := sys.Want(&hook)
	images := sys.Files(d.Initrd.Images)
	for _, image := range images {
		kernel := between(image, d.Initrd.Images)
		if !sys.Exists("/lib/modules/" + kernel) {
			continue // a copy that the administrator keeps, of no installed kernel
		}
		lacks := i.lacks(sys, d.MDConf, image)
		if lacks == "" {
			continue
		}
		if !sys.Exists(d.Initrd.Tool) {
			return nil, resource.Refuse("initramfs-no-tool", resource.With{"image": image, "lacks": lacks, "tool": d.Initrd.Tool, "package": d.Initrd.Package, "distribution": d.Name})
		}
		as = append(as, resource.Action{
			Title: "rebuild the initial RAM disk of " + kernel + ": " + lacks,
			Cmd:   d.Initrd.Rebuild(kernel), Seconds: 900,
		})
	}
	return as, nil
}

// between is the part of a path for which the * of a pattern stands.
func between(path, pattern string) string {
	before, after, _ := strings.Cut(pattern, "*")
	return strings.TrimSuffix(strings.TrimPrefix(path, before), after)
}

// lacks says what keeps an image from being safe; "" if nothing does.
func (i *Initramfs) lacks(sys resource.Look, conf distro.MDConf, image string) string {
	got, err := sys.Initrd(sys.Ctx, image, slices.Concat([]string{conf.Main, conf.Alt, conf.Dir + "*"}, i.Files))
	sys.Check(sys.Ctx.Err())
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	ignored := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if name != conf.Main && name != conf.Alt && !strings.HasPrefix(name, conf.Dir) {
			continue
		}
		for _, a := range md.ConfArrays(got[name]) {
			if a.Ignored() {
				ignored[md.Hex(a.UUID)] = ignored[md.Hex(a.UUID)] || name == conf.Main
			} else if i.ours(a.UUID) {
				return "its " + name + " has " + a.Device + " assembled (array " + md.UUID(a.UUID) + ")"
			}
		}
	}
	for _, u := range i.Arrays {
		if !ignored[md.Hex(u)] {
			return "its " + conf.Main + " does not say that array " + md.UUID(u) + " is to be ignored"
		}
	}
	for _, f := range i.Files {
		want, there := sys.File(f)
		if !there {
			return f + " is not there yet"
		}
		if text, ok := got[f]; !ok || text != want {
			return "its " + f + " is not that of the host"
		}
	}
	return ""
}

func (i *Initramfs) ours(uuid string) bool {
	return slices.ContainsFunc(i.Arrays, func(u string) bool { return md.SameUUID(u, uuid) })
}

// hook has the distribution's builder do it.
func (i *Initramfs) hook(d distro.Distro) string {
	uuids := lists.Map(i.Arrays, md.UUID)
	return d.Initrd.HookText(resource.Header, d.MDConf, uuids, i.Files)
}

// MDConf is a file of mdadm.conf(5) that is the only one to name its arrays:
// an array that two lines name is assembled by neither, or by the wrong one.
// Debian writes such lines itself, for arrays that are there when mdadm is
// installed.
type MDConf struct {
	Path    string
	Content []byte
	Arrays  []string // md UUIDs
}

func (c *MDConf) Identity() (kind, id string) { return "md-conf", c.Path }

// Diff compares the file, and looks for the arrays in all others.
func (c *MDConf) Diff(sys resource.Look) ([]resource.Action, error) {
	own := resource.TextFile{Path: c.Path, Content: c.Content}
	as := sys.Want(&own)
	d := sys.Distro()
	others := sys.Files(d.MDConf.Dir + "*.conf")
	for _, p := range append([]string{d.MDConf.Main, d.MDConf.Alt}, others...) {
		if p == c.Path {
			continue
		}
		old, _ := sys.File(p)
		text := c.without(old)
		if text == old {
			continue
		}
		st, _ := sys.Info(p)
		as = append(as, resource.Action{
			Title: "take the brick's arrays out of " + p, Why: c.Path + " names them; mdadm does not know which of two lines to follow",
			File: &resource.File{Path: p, Content: []byte(text), Mode: st.Mode},
		})
	}
	return as, nil
}

// without comments out the lines that name an array of ours.
func (c *MDConf) without(text string) string {
	lines := strings.Split(text, "\n")
	for _, a := range md.ConfArrays(text) {
		if !slices.ContainsFunc(c.Arrays, func(u string) bool { return md.SameUUID(u, a.UUID) }) {
			continue
		}
		for i := a.First; i <= a.Last; i++ {
			lines[i] = "# now in " + c.Path + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}
