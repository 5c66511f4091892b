package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) topic() *cobra.Command {
	return a.section("topic", "List, show, create and change topics", a.topicList(), a.topicShow(), a.topicCreate(), a.topicSet())
}

func (a *app) topicList() *cobra.Command {
	var l admin.List
	cmd := &cobra.Command{
		Use:               "list",
		Short:             "List topics in order of their names",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) ([]admin.Topic, error) {
			return gather(c.Topics(ctx, l))
		}, a.printTopics),
	}
	listFlags(cmd, &l)
	return cmd
}

func (a *app) printTopics(topics []admin.Topic) error {
	if len(topics) == 0 {
		fmt.Fprintln(a.Err, "There are no topics. Create one with `fusionctl topic create NAME`.")
		return nil
	}
	t := newTable("TOPIC", "QUEUES ", "PERM", "DURABILITY", "MESSAGES ")
	for _, x := range topics {
		t.add(clean(x.Name), queues(x), clean(x.Perm), clean(x.Durability), count(x.Messages))
	}
	return t.write(a.Out)
}

// listFlags adds the flags that every list has.
func listFlags(cmd *cobra.Command, l *admin.List) {
	cmd.Flags().StringVar(&l.Prefix, "prefix", "", "only names that begin with this")
	cmd.Flags().BoolVar(&l.System, "system", false, "include what the system made for itself")
}

// queues is one number when readers and writers have the same queues.
func queues(t admin.Topic) string {
	if t.ReadQueues == t.WriteQueues {
		return strconv.Itoa(int(t.ReadQueues))
	}
	return fmt.Sprintf("%d read, %d write", t.ReadQueues, t.WriteQueues)
}

func (a *app) topicShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show one topic with its queues",
		Args:              names("the topic's NAME"),
		ValidArgsFunction: a.completeTopic(),
		RunE: ask(a, func(ctx context.Context, c *admin.Client, args []string) (*admin.TopicDetail, error) {
			return c.Topic(ctx, args[0])
		}, a.printTopic),
	}
}

func (a *app) printTopic(t *admin.TopicDetail) error {
	fmt.Fprintf(a.Out, "%s: %s queues, %s, %s%s, %s messages\n", clean(t.Name), queues(t.Topic), clean(t.Perm), clean(t.Durability), flagsOf(&t.Topic), count(t.Messages))
	if len(t.Queues) == 0 {
		return nil
	}
	out := newTable("QUEUE ", "FIRST ", "NEXT ", "MESSAGES ")
	for _, q := range t.Queues {
		out.add(strconv.Itoa(int(q.ID)), count(q.MinOffset), count(q.MaxOffset), count(q.MaxOffset-q.MinOffset))
	}
	return out.write(a.Out)
}

func (a *app) topicCreate() *cobra.Command {
	var n admin.NewTopic
	cmd := &cobra.Command{
		Use:               "create NAME",
		Short:             "Create a topic",
		Example:           "  fusionctl topic create orders --queues 8 --durability sync",
		Args:              names("the topic's NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("queues") && n.Queues < 1 {
				return usage("--queues is %d; want at least 1, or no --queues for the server's default", n.Queues)
			}
			err := notEmpty(cmd, map[string]string{"perm": "r, w or rw", "durability": "memory, async or sync", "until-consumed": "a duration of at most 168h, or true"})
			if err != nil {
				return err
			}
			c, ctx, cancel, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			n.Name = args[0]
			t, err := c.CreateTopic(ctx, n)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(t)
			}
			fmt.Fprintf(a.Out, "created %s: %s queues, %s, %s%s\n", clean(t.Name), queues(t.Topic), clean(t.Perm), clean(t.Durability), flagsOf(&t.Topic))
			return nil
		},
	}
	f := cmd.Flags()
	f.Int32Var(&n.Queues, "queues", 0, "read and write queues (default: broker.default-queues of the server)")
	f.StringVar(&n.Perm, "perm", "", "r, w or rw (default: rw)")
	f.StringVar(&n.Durability, "durability", "", "memory, async or sync (default: store.flush of the server)")
	f.BoolVar(&n.Idempotent, "idempotent", false, "store a message that comes again under its unique id once")
	f.StringVar(&n.UntilConsumed, "until-consumed", "", "keep messages so long for push groups that have not read them: a duration of at most 168h, or true for that")
	f.BoolVar(&n.Order, "order", false, "RocketMQ's order flag")
	topicCompletions(cmd, []string{"r", "w", "rw"}, []string{"memory", "async", "sync"})
	return cmd
}

// completeTopic offers the topics of the broker.
func (a *app) completeTopic() cobra.CompletionFunc {
	return complete(a, (*admin.Client).Topics, func(t admin.Topic) string { return t.Name })
}
