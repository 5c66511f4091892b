package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func serverCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "server", Short: "Run the name server, the broker, the Notify wire and HTTP in one process", Args: noArgs}
	_ = configFlags(cmd.Flags())
	cmd.RunE = func(*cobra.Command, []string) error { return errors.New("soon") }
	return cmd
}
