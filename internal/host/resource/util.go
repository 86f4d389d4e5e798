package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Header is the first line of every file Mortar writes.
const Header = "# Written by mortar apply; changes are overwritten.\n"

// absent tells whether a query failed because its program is not installed:
// before the packages step, what it would show counts as not there.
func absent(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// query runs a command that must succeed; installed is false where the
// program is missing.
func query(ctx context.Context, sys Sys, argv ...string) (out Output, installed bool, err error) {
	out, err = sys.Query(ctx, argv...)
	if err != nil {
		if absent(err) {
			return out, false, nil
		}
		return out, false, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return out, true, nil
}

// failed makes an error of a query whose exit code says it went wrong.
func failed(out Output, argv ...string) error {
	return fmt.Errorf("%s: exit code %d: %s", strings.Join(argv, " "), out.Code, strings.TrimSpace(out.Stderr))
}

// readTrim reads a file as one trimmed string; a missing file gives "".
func readTrim(sys Sys, p string) (string, error) {
	b, err := sys.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// exists tells whether a path exists.
func exists(sys Sys, p string) (bool, error) {
	_, err := sys.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// kernelName resolves a device path to its kernel name (sda, dm-3, md127);
// "" if it does not exist.
func kernelName(sys Sys, dev string) string {
	p, err := sys.Readlink(dev)
	if err != nil {
		return ""
	}
	return path.Base(p)
}

// mounts reads /proc/self/mounts.
func mounts(sys Sys) ([]linux.Mount, error) {
	b, err := sys.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return linux.ParseMounts(string(b)), nil
}

// comment writes text as comment lines of at most 76 columns.
func comment(text string) string {
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

// pendingPath is a marker that exists from before a configuration is written
// until the daemon was told: an apply that is killed in between is resumed
// with the reload.
func pendingPath(what string) string { return "/var/lib/mortar/pending-" + what }

// withReload wraps file actions and the commands that make a running daemon
// take them up, so that the commands are repeated if they were lost.
func withReload(sys Sys, what string, files, reload []Action) ([]Action, error) {
	p := pendingPath(what)
	pending, err := exists(sys, p)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 && !pending {
		return nil, nil
	}
	if len(reload) == 0 {
		if pending {
			files = append(files, Action{Title: "forget the pending reload of " + what, File: &File{Path: p, Remove: true}})
		}
		return files, nil
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
	return append(as, reload...), nil
}
