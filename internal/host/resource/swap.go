package resource

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// SwapFile is where apply keeps the swap that the host lacks.
const SwapFile = "/var/lib/mortar/swap"

// SwapHeader is what mkswap takes of each file, and what a size may be off by.
const SwapHeader = 64 << 10

// Swap is how much a host swaps to at least. What it lacks is a file.
type Swap struct {
	Bytes int64
}

func (s *Swap) Identity() (kind, id string) { return "swap", SwapFile }

// Diff compares what the host swaps to. Swap of the site's own stays as it is.
func (s *Swap) Diff(sys Look) ([]Action, error) {
	text, _ := sys.File(linux.SwapsFile)
	var others int64
	swaps := linux.ParseSwaps(text)
	for name, n := range swaps {
		if name != SwapFile {
			others += n
		}
	}
	own, on := swaps[SwapFile]
	need := s.Bytes - others
	switch {
	case need <= SwapHeader:
		return nil, nil // the site's own is enough; a file of ours does no harm
	case need-own <= SwapHeader:
		return s.atBoot(sys), nil
	}
	if err := s.room(sys, need); err != nil {
		return nil, err
	}
	var as []Action
	if on {
		as = append(as, Action{Title: "end the use of " + SwapFile, Why: "it is too small", Cmd: []string{"swapoff", SwapFile}, Seconds: 1800})
	}
	as = append(as, sys.Want(&Directory{Path: "/var/lib/mortar", Keep: true})...)
	as = append(as,
		Action{Title: "make " + SwapFile, Why: "xfs_repair of the volume may need more than memory", Cmd: []string{"fallocate", "--length", strconv.FormatInt(need, 10), SwapFile}, Seconds: 600},
		Action{Title: "keep others from reading it", Cmd: []string{"chmod", "0600", SwapFile}},
		Action{Title: "make swap of it", Cmd: []string{"mkswap", SwapFile}},
		Action{Title: "use it", Cmd: []string{"swapon", SwapFile}},
	)
	return append(as, s.atBoot(sys)...), nil
}

// atBoot has the host swap to the file after each boot.
func (s *Swap) atBoot(sys Look) []Action {
	const unit = "var-lib-mortar-swap.swap"
	as := sys.Want(&TextFile{Path: linux.SystemdDir + unit, Content: []byte(Header + "[Unit]\nDescription=Swap for xfs_repair\n\n[Swap]\nWhat=" + SwapFile + "\n\n[Install]\nWantedBy=swap.target\n")})
	if len(as) > 0 {
		as = append(as, Action{Title: "tell systemd of the file", Cmd: []string{"systemctl", "daemon-reload"}})
	}
	return append(as, sys.Want(&Units{Name: "swap", List: []Unit{{Name: unit, Enabled: true, Keep: true}}})...)
}

// room refuses a file that the host's own system has no room for.
func (s *Swap) room(sys Look, need int64) error {
	mounts, _ := sys.File("/proc/self/mounts")
	if m, ok := linux.MountOf(linux.ParseMounts(mounts), SwapFile); ok && !slices.Contains([]string{"ext4", "xfs"}, m.Type) {
		return Refuse("swap-file-system", With{"path": SwapFile, "type": m.Type})
	}
	out, installed := sys.Command(linux.Avail("/var/lib")...)
	if !installed {
		return nil
	}
	const left = 1 << 30 // for the system itself: logs, packages, Pacemaker's configuration
	if avail, err := linux.ParseAvail(out.Stdout); err == nil && avail < need+left {
		return Refuse("swap-no-room", With{"path": SwapFile, "need": inGiB(need), "free": inGiB(avail), "left": inGiB(left)})
	}
	return nil
}

func inGiB(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
