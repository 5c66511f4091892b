package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) retention() *cobra.Command {
	return a.section("retention", "When files of the log go, and have them go now", a.retentionShow(), a.retentionClean())
}

func (a *app) retentionShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show",
		Short:             "When files of the log go, and how that stands",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) (*admin.Retention, error) {
			return c.Retention(ctx)
		}, a.printRetention),
	}
}

func (a *app) retentionClean() *cobra.Command {
	return &cobra.Command{
		Use:               "clean",
		Short:             "Delete now, at whatever hour, the files of the log that may go",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) (*admin.CleanResult, error) {
			return c.Clean(ctx)
		}, func(done *admin.CleanResult) error {
			fmt.Fprintf(a.Out, "%s of the log deleted\n", files(int64(done.DeletedFiles)))
			return a.printRetention(&done.Retention)
		}),
	}
}

func files(n int64) string {
	if n == 1 {
		return "1 file"
	}
	return count(n) + " files"
}

func (a *app) printRetention(r *admin.Retention) error {
	seconds := func(n int64) string { return (time.Duration(n) * time.Second).String() }
	hours := "at any hour"
	if len(r.DeleteHours) > 0 {
		var hs []string
		for _, h := range r.DeleteHours {
			hs = append(hs, strconv.Itoa(h))
		}
		hours = "in the hours " + strings.Join(hs, ", ")
	}
	oldest := ""
	if r.OldestFileUntil.Unix() > 0 {
		oldest = ", the oldest with messages up to " + r.OldestFileUntil.UTC().Format(time.RFC3339)
	}
	t := newTable("", "")
	t.add("files", files(int64(r.Files))+", from position "+count(r.MinPosition)+oldest)
	t.add("age", "deleted "+seconds(r.AgeSeconds+r.ViewWindowSeconds)+" after their newest message, "+hours)
	t.add("disk", fmt.Sprintf("%d%% used; above %d%% at any hour, above %d%% the oldest whatever their age, above %d%% messages are refused", r.DiskUsedPercent, r.MaxUsedPercent, r.ForcedPercent, r.RefusePercent))
	t.add("since the start", fmt.Sprintf("%s deleted; %s messages stored once more, %s of them unreadable; %s expired unread", files(r.DeletedFiles), count(r.MovedMessages), count(r.LostMessages), count(r.ExpiredMessages)))
	if r.Problem != "" {
		t.add("problem", clean(r.Problem))
	}
	return t.write(a.Out)
}
