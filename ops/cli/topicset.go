package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) topicSet() *cobra.Command {
	var (
		queues, read, write       int32
		perm, durability, consume string
		idempotent, order         bool
		attributes                []string
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a topic while it is in use",
		Long:  "Change a topic while it is in use. What no flag names stays as it is. It shows what was and what is.",
		Example: "  fusionctl topic set orders --durability sync\n" +
			"  fusionctl topic set orders --perm r --until-consumed 36h\n" +
			"  fusionctl topic set orders --attribute message.type=NORMAL --attribute reserve.time=",
		Args:              names("the topic's NAME"),
		ValidArgsFunction: a.completeTopic(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c admin.TopicChange
			given := cmd.Flags().Changed
			if given("queues") {
				if given("read-queues") || given("write-queues") {
					return usage("--queues sets both; leave out --read-queues and --write-queues")
				}
				c.ReadQueues, c.WriteQueues = &queues, &queues
			}
			for _, f := range []struct {
				name string
				set  func()
			}{
				{"read-queues", func() { c.ReadQueues = &read }},
				{"write-queues", func() { c.WriteQueues = &write }},
				{"perm", func() { c.Perm = &perm }},
				{"durability", func() { c.Durability = &durability }},
				{"until-consumed", func() { c.UntilConsumed = &consume }},
				{"idempotent", func() { c.Idempotent = &idempotent }},
				{"order", func() { c.Order = &order }},
			} {
				if given(f.name) {
					f.set()
				}
			}
			for _, text := range attributes {
				name, value, ok := strings.Cut(text, "=")
				if !ok || name == "" {
					return usage("--attribute is %q; want NAME=VALUE, or NAME= to take one away", text)
				}
				if c.Attributes == nil {
					c.Attributes = map[string]*string{}
				}
				if c.Attributes[name] = &value; value == "" {
					c.Attributes[name] = nil
				}
			}
			if cmd.Flags().NFlag() == persistentFlags(cmd) {
				return usage("nothing is to be changed; name at least one of the flags")
			}
			err := notEmpty(cmd, map[string]string{"perm": "r, w, rw, or - for neither", "durability": "memory, async, sync or default", "until-consumed": "a duration of at most 168h, true or off"})
			if err != nil {
				return err
			}
			client, ctx, cancel, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			done, err := client.ChangeTopic(ctx, args[0], c)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(done)
			}
			return a.printChange(done)
		},
	}
	f := cmd.Flags()
	f.Int32Var(&queues, "queues", 0, "read and write queues")
	f.Int32Var(&read, "read-queues", 0, "queues that consumers read; messages in queues beyond them are not read")
	f.Int32Var(&write, "write-queues", 0, "queues that producers write")
	f.StringVar(&perm, "perm", "", "r, w, rw, or - for neither")
	f.StringVar(&durability, "durability", "", "memory, async or sync; default for store.flush of the server")
	f.BoolVar(&idempotent, "idempotent", false, "store a message that comes again under its unique id once")
	f.StringVar(&consume, "until-consumed", "", "keep messages so long for push groups that have not read them: a duration of at most 168h, true for that, or off")
	f.BoolVar(&order, "order", false, "RocketMQ's order flag")
	f.StringArrayVar(&attributes, "attribute", nil, "NAME=VALUE of another attribute, NAME= to take one away; may come several times")
	topicCompletions(cmd, []string{"r", "w", "rw", "-"}, []string{"memory", "async", "sync", "default"})
	for _, name := range []string{"read-queues", "write-queues", "attribute"} {
		mustComplete(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return cmd
}

// persistentFlags is how many flags were given that every command has.
func persistentFlags(cmd *cobra.Command) int {
	n := 0
	for _, name := range []string{"addr", "output", "timeout"} {
		if cmd.Flags().Changed(name) {
			n++
		}
	}
	return n
}

// topicCompletions completes the flags that the commands for topics share.
func topicCompletions(cmd *cobra.Command, perms, durabilities []string) {
	mustComplete(cmd.RegisterFlagCompletionFunc("perm", cobra.FixedCompletions(perms, cobra.ShellCompDirectiveNoFileComp)))
	mustComplete(cmd.RegisterFlagCompletionFunc("durability", cobra.FixedCompletions(durabilities, cobra.ShellCompDirectiveNoFileComp)))
	mustComplete(cmd.RegisterFlagCompletionFunc("queues", cobra.NoFileCompletions))
	mustComplete(cmd.RegisterFlagCompletionFunc("until-consumed", cobra.FixedCompletions([]string{"true", "off"}, cobra.ShellCompDirectiveNoFileComp)))
}

// printChange prints what is another way now.
func (a *app) printChange(c *admin.TopicChanged) error {
	before, after := settings(&c.Before), settings(&c.After)
	t := newTable("SETTING", "BEFORE", "AFTER")
	for i := range after {
		if before[i] != after[i] {
			t.add(clean(after[i].name), clean(before[i].value), clean(after[i].value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(both(c.Before.Attributes, c.After.Attributes))) {
		was, had := c.Before.Attributes[name]
		is, has := c.After.Attributes[name]
		if was != is || had != has {
			t.add("attribute "+clean(name), orNone(was, had), orNone(is, has))
		}
	}
	if len(t.rows) == 0 {
		fmt.Fprintf(a.Err, "%s is like that already; nothing was changed.\n", clean(c.After.Name))
		return nil
	}
	return t.write(a.Out)
}

func both(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

func orNone(value string, is bool) string {
	if !is {
		return "-"
	}
	return clean(value)
}

// setting is one thing that may be set.
type setting struct{ name, value string }

// settings are all that have fields of their own, in an order that does not change.
func settings(t *admin.Topic) []setting {
	consumed := t.UntilConsumed
	if consumed == "" {
		consumed = "off"
	}
	return []setting{
		{"read queues", strconv.Itoa(int(t.ReadQueues))}, {"write queues", strconv.Itoa(int(t.WriteQueues))}, {"perm", t.Perm},
		{"durability", t.Durability}, {"idempotent", yesNo(t.Idempotent)}, {"until consumed", consumed}, {"order", yesNo(t.Order)},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// flagsOf says what a topic has beside queues, permission and durability, each with a comma in front.
func flagsOf(t *admin.Topic) string {
	s := ""
	if t.Idempotent {
		s += ", idempotent"
	}
	if t.UntilConsumed != "" {
		s += ", kept until consumed for " + clean(t.UntilConsumed)
	}
	if t.Order {
		s += ", ordered"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Attributes)) {
		s += ", " + clean(name) + "=" + clean(t.Attributes[name])
	}
	return s
}
