package bench

import (
	"math"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// io500 lists the phases of io500's score, in io500's order. Phases of bandwidth
// count GiB/s, the others thousand operations per second.
// Source: https://io500.org/rules-submission; src/phase-definitions.h and
// calc_score in src/main.c of https://github.com/IO500/io500
var io500 = []struct {
	name  string
	phase string // test/phase of Mortar
	bw    bool
}{
	{"ior-easy-write", "ior-easy/" + string(workload.SeqWrite), true},
	{"mdtest-easy-write", "mdtest-easy/" + string(workload.MDCreate), false},
	{"ior-hard-write", "ior-hard/" + string(workload.SeqWrite), true},
	{"mdtest-hard-write", "mdtest-hard/" + string(workload.MDCreate), false},
	{"find", "mdtest-hard/" + string(workload.Find), false},
	{"ior-easy-read", "ior-easy/" + string(workload.SeqRead), true},
	{"mdtest-easy-stat", "mdtest-easy/" + string(workload.MDStat), false},
	{"ior-hard-read", "ior-hard/" + string(workload.SeqRead), true},
	{"mdtest-hard-stat", "mdtest-hard/" + string(workload.MDStat), false},
	{"mdtest-easy-delete", "mdtest-easy/" + string(workload.MDRemove), false},
	{"mdtest-hard-read", "mdtest-hard/" + string(workload.MDRead), false},
	{"mdtest-hard-delete", "mdtest-hard/" + string(workload.MDRemove), false},
}

// Score is io500's score of the phases that the run has: the geometric mean of
// the bandwidths, that of the metadata rates, and the square root of the product
// of both. It uses the rates of whole phases (all work over all time), as io500
// does. It returns nil if the run has none of the phases.
func Score(phases []report.BenchPhase) *report.Score {
	s := &report.Score{Phases: []report.ScorePhase{}, Missing: []string{}}
	var bw, md []float64
	for _, x := range io500 {
		v := 0.0
		for i := range phases {
			if phases[i].Name != x.phase {
				continue
			}
			if best := phases[i].Peak(); best != nil {
				v = best.Median().WholeValue
			}
		}
		if v <= 0 {
			s.Missing = append(s.Missing, x.name)
			continue
		}
		if x.bw {
			v /= 1024 // MiB/s to GiB/s
			bw = append(bw, v)
			s.Phases = append(s.Phases, report.ScorePhase{Name: x.name, Unit: "GiB/s", Value: v})
			continue
		}
		v /= 1000
		md = append(md, v)
		s.Phases = append(s.Phases, report.ScorePhase{Name: x.name, Unit: "kIOPS", Value: v})
	}
	if len(bw) == 0 || len(md) == 0 {
		return nil
	}
	s.Bandwidth, s.Metadata = geometric(bw), geometric(md)
	s.Total = math.Sqrt(s.Bandwidth * s.Metadata)
	return s
}

func geometric(vs []float64) float64 {
	sum := 0.0
	for _, v := range vs {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(vs)))
}
