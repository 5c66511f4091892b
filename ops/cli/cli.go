// Package cli is the command line of fusionctl.
//
// Every command but those of `store` talks to one broker's administration port through sdk-go/admin and prints a table for people, or with
// -o json what the API gave. Those of `store` work on the files of a data directory that no server has open. It exits with 0 on success,
// 1 when the broker refuses or cannot be reached or something is wrong with the files, 2 on wrong usage.
// Results go to standard output, everything else to standard error.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
	"github.com/fusionmq/fusionmq/store/check"
)

// Version is the version of the program; a release build sets it with -ldflags -X.
var Version = "devel"

// IO is what a command uses of its process. Colours appear when Out is a terminal and NO_COLOR is not set.
type IO struct {
	Out, Err io.Writer
	Getenv   func(string) string
}

// Exit codes.
const (
	ok      = 0
	failure = 1
	misuse  = 2
)

const defaultAddr = "127.0.0.1:8080"

// app is one run of the program.
type app struct {
	IO
	addr    string
	output  string
	timeout time.Duration
}

// errUsage marks mistakes in the command line itself.
var errUsage = errors.New("wrong usage")

// Run executes one command line, without the program's name, and returns the exit code.
func Run(ctx context.Context, args []string, std IO) int {
	a := &app{IO: std}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ok
	}
	if errors.Is(err, errUsage) {
		// A command line that is wrong may not have been read up to its -o.
		asJSON := a.output == "json" || slices.Contains(args, "-ojson") || slices.Contains(args, "--output=json") || followed(args, "-o", "json") || followed(args, "--output", "json")
		a.complain(err.Error(), "Run `"+cmd.CommandPath()+" --help` for what is possible.", nil, asJSON)
		return misuse
	}
	a.explain(err)
	return failure
}

// followed tells whether value comes right after name.
func followed(args []string, name, value string) bool {
	i := slices.Index(args, name)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "fusionctl",
		Short: "Administer FusionMQ brokers",
		Long: "Administer FusionMQ brokers through their administration port.\n\n" +
			"The broker is the one at --addr, or FUSIONMQ_ADDR, or " + defaultAddr + ".",
		Version:                    Version,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       a.command,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if a.output != "table" && a.output != "json" {
				return usage("--output is %q; want table or json", a.output)
			}
			if a.timeout <= 0 {
				return usage("--timeout is %v; want more than 0", a.timeout)
			}
			return nil
		},
	}
	root.SetVersionTemplate("fusionctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	addr := a.Getenv("FUSIONMQ_ADDR")
	if addr == "" {
		addr = defaultAddr
	}
	f := root.PersistentFlags()
	f.StringVar(&a.addr, "addr", addr, "administration port of the broker, host:port or an http(s) address (FUSIONMQ_ADDR)")
	f.StringVarP(&a.output, "output", "o", "table", "form of the result: table or json")
	f.DurationVar(&a.timeout, "timeout", 30*time.Second, "most time that the command may take")
	mustComplete(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	mustComplete(root.RegisterFlagCompletionFunc("addr", cobra.NoFileCompletions))
	root.AddCommand(a.status(), a.topic(), a.group(), a.transaction(), a.retention(), a.storeCommand())
	return root
}

// flagError says what a flag wants when its value cannot be read.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return &usageError{err}
	}
	want := "another value"
	switch bad.GetFlag().Value.Type() {
	case "int", "int32", "int64":
		want = "a whole number, which is not too large"
	case "duration":
		want = "a duration, as in 30s or 5m"
	case "bool":
		want = "true or false"
	}
	return usage("--%s is %q; want %s", bad.GetFlag().Name, bad.GetValue(), want)
}

// notEmpty refuses flags that were given an empty text, which is seldom what was meant: a variable of a script that is not set, say.
func notEmpty(cmd *cobra.Command, flags map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if f := cmd.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return usage("--%s is %q; want %s, or leave it out", name, f.Value, flags[name])
		}
	}
	return nil
}

// mustComplete reports a completion for a flag that does not exist: a mistake in this package.
func mustComplete(err error) {
	if err != nil {
		panic(err)
	}
}

// section makes a command that only holds others.
func (a *app) section(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, SuggestionsMinimumDistance: 2, Args: a.command, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(subs...)
	return c
}

// command refuses words that name no command.
func (a *app) command(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "" {
		return usage("%q is no command of %s; did you mean %q?", args[0], cmd.CommandPath(), near[0])
	}
	return usage("%q is no command of %s", args[0], cmd.CommandPath())
}

// names wants exactly the named arguments.
func names(want ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(want):
			return usage("%s is missing", want[len(args)])
		case len(args) > len(want):
			return usage("%q is one argument too many", args[len(want)])
		}
		for i, what := range want {
			if strings.TrimSpace(args[i]) == "" {
				see := ""
				if p := cmd.Parent(); cmd.Name() != "create" && slices.ContainsFunc(p.Commands(), func(c *cobra.Command) bool { return c.Name() == "list" }) {
					see = "; `" + p.CommandPath() + " list` shows what there is"
				}
				return usage("%s is %q; want one that is not empty%s", what, args[i], see)
			}
		}
		return nil
	}
}

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

type usageError struct{ error }

func (e *usageError) Unwrap() []error { return []error{e.error, errUsage} }

// client connects a command to its broker.
func (a *app) client(cmd *cobra.Command) (*admin.Client, context.Context, context.CancelFunc, error) {
	c, err := admin.New(a.addr)
	if err != nil {
		return nil, nil, nil, &usageError{err}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	return c, ctx, cancel, nil
}

// ask runs a command that puts one question to the broker: what comes is printed by print, or with -o json as it is.
func ask[T any](a *app, fetch func(ctx context.Context, c *admin.Client, args []string) (T, error), print func(T) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, ctx, cancel, err := a.client(cmd)
		if err != nil {
			return err
		}
		defer cancel()
		v, err := fetch(ctx, c, args)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.printJSON(v)
		}
		return print(v)
	}
}

// gather is all that a list has: empty and not nil when that is nothing.
func gather[T any](list iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for v, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// complete offers the names of what the broker lists for the first argument of a command.
func complete[T any](a *app, list func(*admin.Client, context.Context, admin.List) iter.Seq2[T, error], name func(T) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, ctx, cancel, err := a.client(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer cancel()
		all, err := gather(list(c, ctx, admin.List{Prefix: prefix}))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, v := range all {
			out = append(out, name(v))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// explain prints an error and what to do about it.
func (a *app) explain(err error) {
	text, hint := strings.TrimPrefix(err.Error(), "admin: "), ""
	var refused *admin.Error
	var way *url.Error
	var found *foundError
	var hinted *hintError
	switch {
	case errors.As(err, &found):
		if found.worst == check.View {
			hint = "Run `fusionctl store repair " + found.dir + "`, or start the server."
		}
	case errors.As(err, &hinted):
		hint = hinted.hint
	case errors.As(err, &refused):
		if refused.Limit != "" && !strings.Contains(text, refused.Limit) {
			text += " (want " + refused.Limit + ")"
		}
		switch refused.Status {
		case 404:
			hint = "See what there is with `fusionctl topic list` and `fusionctl group list`."
		case 409:
			hint = "Nothing was changed."
		}
	case errors.Is(err, admin.ErrNotFusionMQ):
		hint = "Is " + a.addr + " the http listener of the broker? Its log line \"ready\" and the first lines that it prints name it."
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer from " + a.addr + " within " + a.timeout.String()
		hint = "Check that the address is the broker's http listener, or give more time with --timeout."
	case errors.Is(err, context.Canceled):
		text = "interrupted"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "nothing listens at " + a.addr
		hint = "Start a broker with `fusionmq server`, or name its http listener with --addr or FUSIONMQ_ADDR."
	case errors.As(err, &way):
		text = "cannot reach " + a.addr + ": " + way.Err.Error()
		hint = "Name the broker's http listener with --addr or FUSIONMQ_ADDR."
	}
	a.complain(text, hint, refused, a.output == "json")
}

// printJSON prints a result for programs.
func (a *app) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", b)
	return err
}

// complain prints an error and what to do about it; refused, when there is one, has its parts.
func (a *app) complain(text, hint string, refused *admin.Error, asJSON bool) {
	if asJSON {
		v := struct {
			Error  string `json:"error"`
			Status int    `json:"status,omitempty"`
			Field  string `json:"field,omitempty"`
			Value  string `json:"value,omitempty"`
			Limit  string `json:"limit,omitempty"`
		}{Error: text}
		if refused != nil {
			v.Status, v.Field, v.Value, v.Limit = refused.Status, refused.Field, refused.Value, refused.Limit
		}
		b, _ := json.Marshal(v) // texts and a number
		fmt.Fprintf(a.Err, "%s\n", b)
		return
	}
	fmt.Fprintf(a.Err, "fusionctl: %s\n", text)
	if hint != "" {
		fmt.Fprintln(a.Err, hint)
	}
}
