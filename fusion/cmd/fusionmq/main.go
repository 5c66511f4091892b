// Command fusionmq is a message broker: RocketMQ clients and Notify clients share its topics.
//
// `fusionmq server` runs everything in one process; `fusionmq config` shows, checks, documents and translates
// configurations. It exits with 0 on success, 1 on failure and 2 on wrong usage.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/fusion"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// errUsage marks mistakes in the command line itself.
var errUsage = errors.New("wrong usage")

func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "fusionmq: %v\n", err)
	if errors.Is(err, errUsage) {
		fmt.Fprintf(os.Stderr, "Run `%s --help` for what is possible.\n", cmd.CommandPath())
		return 2
	}
	return 1
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:                        "fusionmq",
		Short:                      "A message broker for RocketMQ clients and Notify clients",
		Version:                    fusion.Version,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       noArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("fusionmq {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(serverCommand(), configCommand())
	return root
}

// usage marks err as a mistake in the command line; its text stays as it is.
func usage(err error) error { return &usageError{err} }

type usageError struct{ error }

func (e *usageError) Unwrap() []error { return []error{e.error, errUsage} }

// noArgs refuses arguments, naming the first.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", near[0])
		}
		return usage(fmt.Errorf("%q is no command of %s%s", args[0], cmd.CommandPath(), hint))
	}
	return usage(fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0]))
}
