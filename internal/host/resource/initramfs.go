package resource

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

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

const (
	initramfsHook   = "/etc/initramfs-tools/hooks/mortar"
	updateInitramfs = "/usr/sbin/update-initramfs"
	mdadmConf       = "/etc/mdadm/mdadm.conf"
	mdadmAltConf    = "/etc/mdadm.conf" // read where the other is missing
	mdadmConfDir    = "/etc/mdadm/mdadm.conf.d/"
)

// Diff reads the image of each kernel. A host that boots without such images
// has only the hook.
func (i *Initramfs) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	hook := TextFile{
		Path: initramfsHook, Mode: 0o755, Content: []byte(i.hook()),
		Why: "each initial RAM disk that is built from now on leaves the brick's arrays alone",
	}
	as, err := hook.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	images, err := sys.Glob("/boot/initrd.img-*")
	if err != nil {
		return nil, err
	}
	for _, image := range images {
		kernel := strings.TrimPrefix(image, "/boot/initrd.img-")
		if ok, err := exists(sys, "/lib/modules/"+kernel); err != nil {
			return nil, err
		} else if !ok {
			continue // a copy that somebody keeps, of no installed kernel
		}
		lacks, err := i.lacks(ctx, sys, image)
		if err != nil {
			return nil, err
		}
		if lacks == "" {
			continue
		}
		if ok, err := exists(sys, updateInitramfs); err != nil {
			return nil, err
		} else if !ok {
			return nil, &Refusal{
				What: image + ": " + lacks + ", and there is no " + updateInitramfs + " to build it anew",
				Mend: "install initramfs-tools, the only builder of initial RAM disks that mortar works with",
			}
		}
		as = append(as, Action{
			Title: "rebuild the initial RAM disk of " + kernel + ": " + lacks,
			Cmd:   []string{"update-initramfs", "-u", "-k", kernel}, Seconds: 900,
		})
	}
	return as, nil
}

// lacks says what keeps an image from being safe; "" if nothing does.
func (i *Initramfs) lacks(ctx context.Context, sys Sys, image string) (string, error) {
	got, err := sys.Initrd(ctx, image, slices.Concat([]string{mdadmConf, mdadmAltConf, mdadmConfDir + "*"}, i.Files))
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil {
		return "it cannot be read: " + err.Error(), nil
	}
	ignored := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if name != mdadmConf && name != mdadmAltConf && !strings.HasPrefix(name, mdadmConfDir) {
			continue
		}
		for _, a := range md.ConfArrays(got[name]) {
			if a.Ignored() {
				ignored[md.Hex(a.UUID)] = ignored[md.Hex(a.UUID)] || name == mdadmConf
			} else if i.ours(a.UUID) {
				return "its " + name + " has " + a.Device + " assembled (array " + md.UUID(a.UUID) + ")", nil
			}
		}
	}
	for _, u := range i.Arrays {
		if !ignored[md.Hex(u)] {
			return "its " + mdadmConf + " does not say that array " + md.UUID(u) + " is to be ignored", nil
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

// hook is a script of initramfs-tools(7). It runs after those of packages,
// which are in another directory, and takes out what they say of our arrays:
// of two lines for an array mdadm --assemble --scan follows the one that does
// not ignore it.
func (i *Initramfs) hook() string {
	var uuids []string
	for _, u := range i.Arrays {
		uuids = append(uuids, md.UUID(u))
	}
	var b strings.Builder
	b.WriteString(`#!/bin/sh
` + Header + `# The initial RAM disk leaves the arrays of the brick alone: on a server that was
# fenced they belong to its partner, which writes to them. mdadm's own hook copies
# nothing of /etc/mdadm/mdadm.conf.d, and adds a line for each array that it sees.
set -eu
[ "${1:-}" != prereqs ] || exit 0
arrays="` + strings.Join(uuids, " ") + `"
conf=$DESTDIR` + mdadmConf + `
mkdir -p "$DESTDIR` + strings.TrimSuffix(mdadmConfDir, "/") + `"
[ -e "$conf" ] || : > "$conf"
for file in "$conf" "$DESTDIR` + mdadmAltConf + `" "$DESTDIR` + mdadmConfDir + `"*; do
  [ -f "$file" ] || continue
  # A line that begins with a blank goes on with the one before.
  awk -v arrays="$arrays" '
    function end(  words, n, i) {
      gsub(/[^0-9a-z]/, "", line)
      n = split(tolower(arrays), words, " ")
      for (i = 1; i <= n; i++) {
        gsub(/:/, "", words[i])
        if (line ~ /^arr/ && index(line, "uuid" words[i])) text = ""
      }
      printf "%s", text
      text = line = ""
    }
    /^[^ \t#]/ { end() }
    { text = text $0 "\n" }
    !/^[ \t]*#/ { line = line tolower($0) }
    END { end() }
  ' "$file" > "$file.mortar"
  cat "$file.mortar" > "$file"
  rm "$file.mortar"
done
for array in $arrays; do
  echo "ARRAY <ignore> UUID=$array" >> "$conf"
done
`)
	for _, f := range i.Files {
		b.WriteString("mkdir -p \"$DESTDIR" + path.Dir(f) + "\"\ncp -p " + f + " \"$DESTDIR" + f + "\"\n")
	}
	return b.String()
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
	others, err := sys.Glob(mdadmConfDir + "*.conf")
	if err != nil {
		return nil, err
	}
	for _, p := range append([]string{mdadmConf, mdadmAltConf}, others...) {
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
