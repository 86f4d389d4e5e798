package ocf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// A service that cannot be stopped keeps its storage, and Pacemaker has this server
// fenced. If no fence device works, no server may start the service elsewhere, and it
// is down until a person comes. So the watcher resets the server in the end. After
// that it holds nothing, joins the cluster as a server that has just booted, and
// the service starts. A reset costs no more than the fencing that failed.

// unfencedFor is how long the cluster has to fence this server after a stop has
// failed: Mortar's fence agent may take 40 s, a BMC after it 12 s, and each of two PDUs
// stonith-timeout (60 s).
const unfencedFor = 190 * time.Second

// overdueIn has the watcher reset this server after a while.
func (s *service) overdueIn(d time.Duration) {
	s.Log.NoteErr(s.OverdueNote().Write(fmt.Sprintf("%.0f\n", (s.Uptime()+d).Seconds())), "this server will not reset itself if it is not fenced")
}

// overdue says whether the service should have been stopped, or this server fenced,
// by now.
func (s *service) overdue() bool {
	text, _ := s.OverdueNote().Read()
	end, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil && s.Uptime().Seconds() >= end && s.up()
}

// stop stops the service. Until that is done a file tells the watcher when to give
// up; the agent itself may hang.
func (a *agent) stop(ctx context.Context) int {
	cfg, code, err := a.config("stop")
	if err != nil && untouched(a.getenv("OCF_RESKEY_config")) {
		fmt.Fprintf(a.stderr, "%v; no action of this service has begun since the server booted: there is nothing to stop\n", err)
		return Success
	}
	if err != nil {
		a.reason(err)
		return code
	}
	s, err := a.service("stop", cfg)
	if err != nil {
		a.reason(err)
		return ErrGeneric
	}
	if s.up() {
		s.overdueIn(a.timeout("stop") + unfencedFor)
	}
	code = a.inTime(ctx, "stop")
	switch {
	case code == Success:
		s.OverdueNote().Forget()
	case s.up():
		s.overdueIn(unfencedFor)
	}
	return code
}

// untouched says whether no action of a config's service has begun since this server
// booted: each makes the file of the lock first. Only apply names configs.
func untouched(config string) bool {
	name, ok := strings.CutPrefix(path.Base(config), "service-")
	service, ok2 := strings.CutSuffix(name, ".json")
	if !ok || !ok2 {
		return false
	}
	_, err := os.Stat(lockFile(service))
	return errors.Is(err, os.ErrNotExist)
}

// unstopped resets this server if the service could not be stopped and no partner has
// fenced the server since.
func (w *watcher) unstopped(s *service) {
	if !s.overdue() {
		return
	}
	why := fmt.Errorf("service %s could not be stopped, and no fence device has switched this server off: it resets itself", s.cfg.Service)
	w.log("%v", why)
	if err := s.reset(why); err != nil {
		w.log("%v", err)
	}
}
