package forecast

import (
	"fmt"
	"math"
)

// Scale is what n bricks deliver together.
type Scale struct {
	Bricks int `json:"bricks"`
	// Storage is what the bricks can move, Files what remains of it if the
	// load is whole files of the mean size, each of which the MDS has to make
	// or open. MB/s, with the bricks' and the MDS's unavailability taken off.
	StorageWrite float64 `json:"storage_write_mbps"`
	StorageRead  float64 `json:"storage_read_mbps"`
	FilesWrite   float64 `json:"files_write_mbps"`
	FilesRead    float64 `json:"files_read_mbps"`
	Limit        string  `json:"limit"` // of FilesWrite: bricks or MDS
	// AnyLoss is the probability that any brick loses data in the time.
	AnyLoss Estimate `json:"any_loss"`
	// PartDown is the share of time in which some file cannot be reached.
	PartDown Estimate `json:"part_down"`
}

// ScaleCounts are the fleets that are shown.
var ScaleCounts = []int{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}

// Scaling says how n = 1 to 1,000 bricks of a kind do together, by the
// bottleneck model and by what a simulation found for one brick (and for the
// MDS module, if there is one). Bricks of NFS are file systems of their own
// and share nothing; those of Lustre share the MDS.
func Scaling(h Hardware, c Coefficients, brick Result, mds *Result, counts []int) ([]Scale, error) {
	h.Bricks = 1
	if err := h.Check(); err != nil {
		return nil, err
	}
	limit := func(p Pattern) float64 {
		x, _ := narrowest(model{&h, c, p}.sequential())
		return x
	}
	write, read := limit(SeqWrite), limit(SeqRead)
	file := c.Get("fleet.file_mib") * 1.048576
	up := 1 - brick.Unavailability.Mean
	mdsUp := 1.0
	mdsWrite, mdsRead := math.Inf(1), math.Inf(1)
	if h.Protocol == "lustre" {
		mdsWrite = float64(h.MDS) * c.Get("lustre.mds_create") * file
		mdsRead = float64(h.MDS) * c.Get("lustre.mds_stat") * file
		if mds != nil {
			mdsUp = 1 - mds.Unavailability.Mean
		}
	}
	var out []Scale
	for _, n := range counts {
		if n < 1 {
			return nil, fmt.Errorf("%d bricks: want at least 1", n)
		}
		N := float64(n)
		s := Scale{Bricks: n, StorageWrite: N * write * up * mdsUp, StorageRead: N * read * up * mdsUp, Limit: "bricks"}
		s.FilesWrite = math.Min(s.StorageWrite, mdsWrite*mdsUp)
		s.FilesRead = math.Min(s.StorageRead, mdsRead*mdsUp)
		if s.FilesWrite < s.StorageWrite {
			s.Limit = "MDS"
		}
		any := func(p, q float64) float64 { return -math.Expm1(N*math.Log1p(-p) + math.Log1p(-q)) }
		var lost Estimate
		if mds != nil {
			lost = mds.LossProbability
		}
		s.AnyLoss = combine(any, brick.LossProbability, lost)
		s.PartDown = partDown(brick, mds, N)
		out = append(out, s)
	}
	return out, nil
}

// partDown is the share of time in which any of n bricks, or the MDS, is
// down. Power fails for the whole site at once; all else for each alone.
func partDown(brick Result, mds *Result, n float64) Estimate {
	alone := func(r Result) Estimate {
		p := r.DownHours[CausePower].Mean / HoursPerYear
		u := r.Unavailability
		return Estimate{math.Max(0, u.Mean-p), math.Max(0, u.Low-p), math.Max(0, u.High-p)}
	}
	power := brick.DownHours[CausePower].Mean / HoursPerYear
	var other Estimate
	if mds != nil {
		other = alone(*mds)
	}
	return combine(func(p, q float64) float64 {
		return -math.Expm1(n*math.Log1p(-p) + math.Log1p(-q) + math.Log1p(-power))
	}, alone(brick), other)
}

func combine(f func(p, q float64) float64, a, b Estimate) Estimate {
	one := func(x float64) float64 { return math.Min(x, 1-1e-12) }
	return Estimate{f(one(a.Mean), one(b.Mean)), f(one(a.Low), one(b.Low)), f(one(a.High), one(b.High))}
}
