package fusion

import (
	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/fusion/telemetry"
)

// Reload takes over the settings of cfg that may change while the process runs, and logs what it did with each one that
// differs from the configuration of the start.
func (a *App) Reload(cfg *config.Loaded) {
	before, live := a.cfg.Settings(), a.live.Load().Settings()
	for i, now := range cfg.Settings() {
		switch {
		case now.Live && now.Text() != live[i].Text():
			a.log.Info("setting changed", "key", now.Name, "from", live[i].Text(), "to", now.Text())
		case !now.Live && now.Text() != before[i].Text():
			a.log.Warn("setting waits for the next start", "key", now.Name, "now", before[i].Text(), "then", now.Text())
		}
	}
	if a.opts.Level != nil {
		telemetry.SetLevel(a.opts.Level, cfg.Log.Level)
	}
	a.live.Store(cfg)
}
