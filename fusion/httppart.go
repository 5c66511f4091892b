package fusion

import (
	"context"
	"net"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/fusion/telemetry"
)

// startHTTP opens the administration port.
func (a *App) startHTTP(ctx context.Context) error {
	l, err := a.open(ctx, "http")
	if l == nil {
		return err
	}
	at, _ := l.Addr().(*net.TCPAddr)
	a.http = httpapi.Serve(l, httpapi.New(httpapi.Options{
		Admin:    (*adminView)(a),
		Ready:    a.Ready,
		Metrics:  a.metrics(),
		Log:      a.log,
		Version:  Version,
		Loopback: at != nil && at.IP.IsLoopback(),
	}), a.log)
	return nil
}

func (a *App) stopHTTP(ctx context.Context) error {
	if a.http == nil {
		return nil
	}
	return a.http.Shutdown(ctx)
}

// startProfiles begins to send profiles when the configuration names a server for them.
func (a *App) startProfiles(context.Context) (err error) {
	c := &a.cfg.Config
	if c.Pyroscope.URL == "" {
		return nil
	}
	a.profiles, err = telemetry.Profile(c.Pyroscope.URL, c.Pyroscope.App, map[string]string{"cluster": c.Broker.Cluster, "broker": c.Broker.Name}, a.log)
	return err
}

func (a *App) stopProfiles(context.Context) error {
	if a.profiles == nil {
		return nil
	}
	return a.profiles()
}
