package resource

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/md"
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

// Kind is "initramfs".
func (i *Initramfs) Kind() string { return "initramfs" }

// ID is "initrd".
func (i *Initramfs) ID() string { return "initrd" }

// Diff reads the image of each kernel. A host that boots without such images
// has only the hook.
func (i *Initramfs) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	d, err := distroOf(sys)
	if err != nil {
		return nil, err
	}
	hook := TextFile{
		Path: d.Initrd.Hook, Mode: d.Initrd.HookMode, Content: []byte(i.hook(d)),
		Why: "each initial RAM disk that is built from now on leaves the brick's arrays alone",
	}
	as, err := hook.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	images, err := sys.Glob(d.Initrd.Images)
	if err != nil {
		return nil, err
	}
	for _, image := range images {
		kernel := between(image, d.Initrd.Images)
		if ok, err := exists(sys, "/lib/modules/"+kernel); err != nil {
			return nil, err
		} else if !ok {
			continue // a copy that somebody keeps, of no installed kernel
		}
		lacks, err := i.lacks(ctx, sys, d.MDConf, image)
		if err != nil {
			return nil, err
		}
		if lacks == "" {
			continue
		}
		if ok, err := exists(sys, d.Initrd.Tool); err != nil {
			return nil, err
		} else if !ok {
			return nil, &Refusal{
				What: image + ": " + lacks + ", and there is no " + d.Initrd.Tool + " to build it anew",
				Mend: "install " + d.Initrd.Package + ", the only builder of initial RAM disks that mortar works with on " + d.Name,
			}
		}
		as = append(as, Action{
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
func (i *Initramfs) lacks(ctx context.Context, sys Sys, conf distro.MDConf, image string) (string, error) {
	got, err := sys.Initrd(ctx, image, slices.Concat([]string{conf.Main, conf.Alt, conf.Dir + "*"}, i.Files))
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil {
		return "it cannot be read: " + err.Error(), nil
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
				return "its " + name + " has " + a.Device + " assembled (array " + md.UUID(a.UUID) + ")", nil
			}
		}
	}
	for _, u := range i.Arrays {
		if !ignored[md.Hex(u)] {
			return "its " + conf.Main + " does not say that array " + md.UUID(u) + " is to be ignored", nil
		}
	}
	for _, f := range i.Files {
		want, err := sys.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			return f + " is not there yet", nil
		}
		if err != nil {
			return "", err
		}
		if text, ok := got[f]; !ok || text != string(want) {
			return "its " + f + " is not that of the host", nil
		}
	}
	return "", nil
}

func (i *Initramfs) ours(uuid string) bool {
	return slices.ContainsFunc(i.Arrays, func(u string) bool { return md.SameUUID(u, uuid) })
}

// hook has the distribution's builder do it.
func (i *Initramfs) hook(d distro.Distro) string {
	var uuids []string
	for _, u := range i.Arrays {
		uuids = append(uuids, md.UUID(u))
	}
	return d.Initrd.HookText(Header, d.MDConf, uuids, i.Files)
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

// Kind is "md-conf".
func (c *MDConf) Kind() string { return "md-conf" }

// ID is the path.
func (c *MDConf) ID() string { return c.Path }

// Diff compares the file, and looks for the arrays in all others.
func (c *MDConf) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	own := TextFile{Path: c.Path, Content: c.Content}
	as, err := own.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	d, err := distroOf(sys)
	if err != nil {
		return nil, err
	}
	others, err := sys.Glob(d.MDConf.Dir + "*.conf")
	if err != nil {
		return nil, err
	}
	for _, p := range append([]string{d.MDConf.Main, d.MDConf.Alt}, others...) {
		if p == c.Path {
			continue
		}
		b, err := sys.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text := c.without(string(b))
		if text == string(b) {
			continue
		}
		st, err := sys.Stat(p)
		if err != nil {
			return nil, err
		}
		as = append(as, Action{
			Title: "take the brick's arrays out of " + p, Why: c.Path + " names them; mdadm does not know which of two lines to follow",
			File: &File{Path: p, Content: []byte(text), Mode: st.Mode},
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
