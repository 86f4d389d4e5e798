package nfs

import (
	"context"
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

var nlockmgr = kernel.Program{Name: "nlockmgr", Number: 100021, Version: 4}

// What NFSv3 clients ask rpcbind for. Source: rpc(5), nfsd(7).
var v3Programs = []kernel.Program{{Name: "nfs", Number: 100003, Version: 3}, {Name: "mountd", Number: 100005, Version: 3}, nlockmgr, {Name: "status", Number: 100024, Version: 1}}

// registered says whether NFSv3 clients can find what they need.
func (s *server) registered(ctx context.Context) error {
	if !s.cfg.NFS.serves("3") {
		return nil
	}
	ports, err := s.In.Ports(ctx, v3Programs)
	if err != nil {
		return fmt.Errorf("rpcbind does not answer: %w", err)
	}
	var missing []string
	for i, p := range v3Programs {
		if ports[i] == 0 {
			missing = append(missing, p.Name)
		}
	}
	if missing != nil {
		return fmt.Errorf("rpcbind does not know %s", strings.Join(missing, ", "))
	}
	return nil
}
