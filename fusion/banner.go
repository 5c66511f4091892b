package fusion

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fusionmq/fusionmq/fusion/config"
)

// Summary is what a person who has started the process wants to know: what listens where, what clients are told, what bounds
// there are.
func (a *App) Summary() string {
	var b strings.Builder
	c := &a.cfg.Config
	fmt.Fprintf(&b, "FusionMQ %s: broker %s in %s, profile %s\n", Version, c.Broker.Name, c.Broker.Cluster, c.Profile)
	serves := map[string]string{
		"nameserver": "RocketMQ name server; clients start here",
		"broker":     "RocketMQ broker; " + a.told(),
		"fast":       "RocketMQ broker for clients up to 4.4",
		"notify":     "Notify wire",
		"http":       "/api/v1/status, /metrics, /healthz, /readyz",
	}
	open := a.Listeners()
	for _, name := range listenerNames {
		addr := open[name]
		if addr == "" {
			addr = config.Off
		}
		fmt.Fprintf(&b, "  %-12s %-22s %s\n", name, addr, serves[name])
	}
	flush := "acknowledged in the page cache (async)"
	if c.Store.Flush == "sync" {
		flush = "acknowledged on disk (sync)"
	}
	bounds := a.store.Bounds()
	fmt.Fprintf(&b, "  %-12s %s, %s of log, %s\n", "data", a.data, roughSize(bounds.Max-bounds.Min), flush)
	fmt.Fprintf(&b, "  %-12s a message %s, broker connections %d, Notify connections %d, collector works harder from %s\n", "limits",
		config.FormatSize(a.maxMessage), c.Broker.MaxConnections, c.Notify.MaxConnections, roughSize(a.opts.Limit))
	if d := descriptorLimit(); d > 0 && d < c.Broker.MaxConnections+c.Notify.MaxConnections+otherDescriptors {
		fmt.Fprintf(&b, "  %-12s %d for this process, fewer than these connections need: raise ulimit -n or LimitNOFILE to have them all\n", "descriptors", d)
	}
	fmt.Fprintf(&b, "  %-12s none: everyone who reaches a port may do everything%s\n", "security", a.exposure())
	return b.String()
}

// told says what clients are told to connect to.
func (a *App) told() string {
	if a.adv.follow {
		return fmt.Sprintf("clients are told port %d of the address by which they reached the name server", a.adv.port)
	}
	return "clients are told " + a.adv.addr()
}

// exposure names the listeners that other machines reach.
func (a *App) exposure() string {
	var names []string
	for _, name := range listenerNames {
		if l := a.listen[name]; l != nil {
			if ap, err := netip.ParseAddrPort(l.Addr().String()); err == nil && !ap.Addr().IsLoopback() {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "; only this machine reaches them"
	}
	return "; other machines reach " + strings.Join(names, ", ")
}

// ReadyLine is one line for programs that have started the process: ready, and name=host:port of every open listener.
func (a *App) ReadyLine() string {
	open := a.Listeners()
	line := "ready"
	for _, name := range listenerNames {
		if addr := open[name]; addr != "" {
			line += " " + name + "=" + addr
		}
	}
	return line
}

// roughSize writes a number of bytes for people.
func roughSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
