package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) group() *cobra.Command {
	return a.section("group", "List and show consumer groups", a.groupList(), a.groupShow(), a.groupExpired())
}

func (a *app) groupList() *cobra.Command {
	var l admin.List
	cmd := &cobra.Command{
		Use:               "list",
		Short:             "List the groups of both front ends in order of their names",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) ([]admin.Group, error) {
			return gather(c.Groups(ctx, l))
		}, a.printGroups),
	}
	listFlags(cmd, &l)
	return cmd
}

func (a *app) printGroups(groups []admin.Group) error {
	if len(groups) == 0 {
		fmt.Fprintln(a.Err, "There are no groups. A group appears when its first consumer connects.")
		return nil
	}
	t := newTable("GROUP", "MODE", "MEMBERS ", "LAG ", "TOPICS")
	for _, g := range groups {
		t.add(clean(g.Name), clean(g.Mode), count(int64(len(g.Members))), count(g.Lag), topicsOf(g))
	}
	return t.write(a.Out)
}

// topicsOf names the first topics of a group.
func topicsOf(g admin.Group) string {
	const most = 3
	var out []string
	for i, t := range g.Topics {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(g.Topics)-most))
			break
		}
		out = append(out, clean(t.Topic))
	}
	return strings.Join(out, ", ")
}

func (a *app) groupShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show one group with its topics and members",
		Args:              names("the group's NAME"),
		ValidArgsFunction: a.completeGroup(),
		RunE: ask(a, func(ctx context.Context, c *admin.Client, args []string) (*admin.Group, error) {
			return c.Group(ctx, args[0])
		}, a.printGroup),
	}
}

func (a *app) printGroup(g *admin.Group) error {
	fmt.Fprintf(a.Out, "%s: %s, %s, lag %s\n", clean(g.Name), clean(g.Mode), one(len(g.Members), "member", "members"), count(g.Lag))
	if g.Mode == "push" {
		fmt.Fprintf(a.Out, "%s without an answer yet, %s to be tried again\n", count(int64(g.Unanswered)), count(int64(g.Retries)))
	}
	if len(g.Topics) > 0 {
		t := newTable("TOPIC", "LAG ", "STATE")
		for _, x := range g.Topics {
			state := ""
			if x.Attached != nil {
				state = "behind"
				if *x.Attached {
					state = "attached"
				}
			}
			t.add(clean(x.Topic), count(x.Lag), state)
		}
		if err := t.write(a.Out); err != nil {
			return err
		}
	}
	if len(g.Members) == 0 {
		return nil
	}
	head := []string{"MEMBER", "ADDRESS", "LANGUAGE", "VERSION"}
	if g.Conflict {
		fmt.Fprintln(a.Out, "Members subscribe differently: each overwrites what the others want, and messages are passed over.")
		head = append(head, "SUBSCRIPTION")
	}
	t := newTable(head...)
	for _, m := range g.Members {
		row := []string{clean(m.ID), clean(m.Address), clean(m.Language), clean(m.Version)}
		if g.Conflict {
			row = append(row, clean(m.Subs))
		}
		t.add(row...)
	}
	return t.write(a.Out)
}

func (a *app) groupExpired() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:               "expired",
		Short:             "List the newest messages that were deleted before a group had read them",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) ([]admin.Expiry, error) {
			return c.Expiries(ctx, most)
		}, a.printExpiries),
	}
	cmd.Flags().IntVar(&most, "limit", 100, "most ranges to list, 1 to 1000")
	mustComplete(cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions))
	return cmd
}

func (a *app) printExpiries(all []admin.Expiry) error {
	if len(all) == 0 {
		fmt.Fprintln(a.Err, "Every group has read what was deleted.")
		return nil
	}
	t := newTable("TIME", "GROUP", "MODE", "TOPIC", "QUEUE ", "FIRST ", "LAST ", "MESSAGES ", "REASON")
	for _, e := range all {
		t.add(e.Time.UTC().Format(time.RFC3339), clean(e.Group), clean(e.Face), clean(e.Topic), count(int64(e.Queue)), count(e.First), count(e.Last), count(e.Count), clean(e.Reason))
	}
	return t.write(a.Out)
}

// completeGroup offers the groups of the broker.
func (a *app) completeGroup() cobra.CompletionFunc {
	return complete(a, (*admin.Client).Groups, func(g admin.Group) string { return g.Name })
}
