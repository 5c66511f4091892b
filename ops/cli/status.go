package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:               "status",
		Short:             "What the broker is and how it stands",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) (*admin.Status, error) {
			return c.Status(ctx)
		}, a.printStatus),
	}
}

func (a *app) printStatus(s *admin.Status) error {
	r := lipgloss.NewRenderer(a.Out)
	state := r.NewStyle().Foreground(lipgloss.Color("2")).Render("serving")
	if !s.Ready {
		state = r.NewStyle().Foreground(lipgloss.Color("3")).Render("not ready")
	}
	security := clean(s.Security)
	if s.Security == "none" {
		security = r.NewStyle().Foreground(lipgloss.Color("3")).Render("none: everyone who reaches a port may do everything")
	}
	t := newTable("", "")
	add := func(name, value string) { t.rows = append(t.rows, []string{name, value}) }
	add("broker", clean(s.Broker)+" in "+clean(s.Cluster)+", "+state+" for "+(time.Duration(s.UptimeSeconds)*time.Second).String())
	add("version", clean(s.Version)+", "+clean(s.GoVersion)+", process "+strconv.Itoa(s.PID)+", profile "+clean(s.Profile))
	add("security", security)
	add("clients are told", clean(strings.Replace(s.Advertised, "*", "(the address they came by)", 1)))
	for i, name := range slices.Sorted(maps.Keys(s.Listeners)) {
		title := ""
		if i == 0 {
			title = "listens"
		}
		add(title, clean(name)+" "+clean(s.Listeners[name]))
	}
	add("data", clean(s.Data))
	add("log", size(s.Store.MaxPosition-s.Store.MinPosition)+" kept, "+size(s.Store.MaxPosition-s.Store.SyncedPosition)+" not on disk yet, "+
		size(s.Store.MaxPosition-s.Store.DispatchedPosition)+" not in the views yet, flush "+clean(s.Store.Flush))
	if s.Store.Problem != "" {
		add("", r.NewStyle().Foreground(lipgloss.Color("1")).Render("takes no messages: "+clean(s.Store.Problem)))
	}
	add("topics", count(int64(s.Counts.Topics)))
	add("groups", one(s.Counts.PullGroups, "pulls", "pull")+", "+one(s.Counts.PushGroups, "is pushed to", "are pushed to"))
	add("connections", count(int64(s.Counts.BrokerConnections))+" on the broker, "+count(int64(s.Counts.NotifyConnections))+" on the Notify wire")
	add("memory", size(s.Memory.AnonymousBytes)+" resident, "+size(s.Memory.HeapBytes)+" heap, collector limit "+size(s.Memory.LimitBytes))
	return t.write(a.Out)
}
