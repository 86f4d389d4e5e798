package workload

import (
	"context"
	"fmt"
)

func benchForeign(_ context.Context, job BenchJob, _ <-chan int64, _ <-chan struct{}, _ func(BenchProgress)) (*BenchResult, error) {
	return nil, fmt.Errorf("engine %s cannot be driven yet: use mortar", job.Engine)
}

func engineVersion(context.Context, BenchEngine, string) string { return "installed" }
