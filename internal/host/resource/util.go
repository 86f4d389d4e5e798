package resource

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Header is the first line of every file Mortar writes.
const Header = "# Written by mortar apply; changes are overwritten.\n"

// readTrim reads a file as one trimmed string; a missing file gives "".
func readTrim(sys Sys, p string) (string, error) {
	b, err := sys.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// mounts reads /proc/self/mounts.
func mounts(sys Sys) ([]linux.Mount, error) {
	b, err := sys.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return linux.ParseMounts(string(b)), nil
}

// Comment writes text as comment lines of at most 76 columns.
func Comment(text string) string {
	var b strings.Builder
	line := "#"
	for _, w := range strings.Fields(text) {
		if len(line)+1+len(w) > 76 && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
	return b.String()
}

// atoi reads a decimal number; -1 if it is none.
func atoi(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return -1
	}
	return n
}

// PendingPath is a marker that exists from before a configuration is written
// until the daemon was told: an apply that is killed in between is resumed
// with the reload.
func PendingPath(what string) string { return "/var/lib/mortar/pending-" + what }

// WithReload wraps file actions and the commands that make a running daemon
// take them up, so that the commands are repeated if they were lost.
func WithReload(sys Look, what string, files, reload []Action) []Action {
	p := PendingPath(what)
	pending := sys.Exists(p)
	if len(files) == 0 && !pending {
		return nil
	}
	if len(reload) == 0 {
		if pending {
			files = append(files, Action{Title: "forget the pending reload of " + what, File: &File{Path: p, Remove: true}})
		}
		return files
	}
	var as []Action
	if !pending {
		as = append(as, Action{
			Title: "note that " + what + " is to be reloaded", Why: "an apply that is killed before the reload repeats it",
			File: &File{Path: p, Content: []byte(Header), Mode: 0o644},
		})
	}
	as = append(as, files...)
	// One action with the reload: were it another, an apply that is always
	// killed between the two would reload for ever.
	reload[0].File = &File{Path: p, Remove: true}
	return append(as, reload...)
}

// MortarCommand is the binary on a server.
const MortarCommand = "/usr/local/sbin/mortar"

// LVMArgs are options every LVM command of Mortar gets: only the brick's
// physical volumes are scanned, and for the one command the host goes by the
// brick's system ID. extra_system_ids would not do: with it a volume group
// can be changed, but not activated.
// Source: lvm(8), --devices; lvmsystemid(7).
func LVMArgs(systemID string, pvs []string) []string {
	var a []string
	if systemID != "" {
		a = append(a, "--config", `global{system_id_source="lvmlocal"} local{system_id="`+systemID+`"}`)
	}
	return append(a, "--devices", strings.Join(pvs, ","))
}

// SameSet compares lists without regard to order: the MGS NID that is tried
// first, and the first service node, are those of the first mount.
func SameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// OrNone is a text for people, "none" instead of nothing.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
