package telemetry

import (
	"fmt"
	"log/slog"

	"github.com/grafana/pyroscope-go"
)

// Profile sends CPU and memory profiles to a Pyroscope server until stop is called. A server that cannot be reached is logged at
// debug level and tried again; it never disturbs the process.
func Profile(url, app string, labels map[string]string, log *slog.Logger) (stop func() error, err error) {
	p, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: app,
		ServerAddress:   url,
		Tags:            labels,
		Logger:          profileLog{log},
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileAllocObjects, pyroscope.ProfileAllocSpace,
			pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace, pyroscope.ProfileGoroutines,
		},
	})
	if err != nil {
		return nil, err
	}
	return p.Stop, nil
}

// profileLog keeps the profiler's chatter at debug level.
type profileLog struct{ log *slog.Logger }

func (l profileLog) Infof(f string, a ...any)  { l.debug(f, a) }
func (l profileLog) Debugf(f string, a ...any) { l.debug(f, a) }
func (l profileLog) Errorf(f string, a ...any) { l.debug(f, a) }
func (l profileLog) debug(f string, a []any)   { l.log.Debug("pyroscope", "text", fmt.Sprintf(f, a...)) }
