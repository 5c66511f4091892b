package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fusionmq/fusionmq/fusion/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:                        "config",
		Short:                      "Show, check, document and translate configurations",
		SuggestionsMinimumDistance: 2,
		Args:                       noArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configShow(), configCheck(), configDocs(), configImport())
	return cmd
}

func configShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every setting and where it comes from",
		Long:  "Print the configuration that `fusionmq server` with the same flags, environment and file would use, as a complete YAML file. A comment says where each setting comes from.",
		Args:  noArgs,
	}
	sources := configFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := config.Load(sources())
		if err != nil {
			return err
		}
		return config.WriteYAML(cmd.OutOrStdout(), l)
	}
	return cmd
}

func configCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether a configuration is valid, without starting anything",
		Args:  noArgs,
	}
	sources := configFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := config.Load(sources()); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
		return nil
	}
	return cmd
}

func configDocs() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of all keys as Markdown",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return config.WriteDocs(cmd.OutOrStdout()) },
	}
}

func configImport() *cobra.Command {
	return &cobra.Command{
		Use:   "import BROKER.CONF",
		Short: "Translate a RocketMQ broker.conf to YAML on standard output",
		Long: "Translate a RocketMQ broker.conf to a YAML file for --config, on standard output. Keys without an effect here become comments, and a warning on " +
			"standard error says why. Use - to read standard input.",
		Example: "  fusionmq config import conf/broker.conf > fusionmq.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(errors.New("config import wants one file, or - for standard input"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name := cmd.InOrStdin(), "standard input"
			if args[0] != "-" {
				name = args[0]
				f, err := os.Open(name)
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			im, err := config.Import(in)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, w := range im.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", name, w)
			}
			_, err = cmd.OutOrStdout().Write(im.YAML)
			return err
		},
	}
}

// configFlags adds a flag for the file and for every key that has one. The result collects what was given.
func configFlags(fs *pflag.FlagSet) func() config.Sources {
	file := fs.String("config", os.Getenv("FUSIONMQ_CONFIG"), "YAML file with the configuration (FUSIONMQ_CONFIG)")
	fs.SortFlags = false
	given := map[string]string{}
	for _, k := range config.Keys() {
		if !k.HasFlag {
			continue
		}
		f := fs.VarPF(&flagValue{key: k, given: given, text: k.Default}, k.Flag(), "", flagHelp(k))
		if k.IsBool() {
			f.NoOptDefVal = "true"
		}
		f.DefValue = "" // the help text has it
	}
	return func() config.Sources { return config.Sources{File: *file, Env: os.Environ(), Flags: given} }
}

func flagHelp(k config.Key) string {
	d := k.Default
	if k.Shown != "" {
		d = k.Shown
	}
	text := firstSentence(k.Doc)
	if d == "" {
		return text
	}
	return fmt.Sprintf("%s (default %s)", text, d)
}

// firstSentence keeps the help on few lines; the whole text is in the reference. The back quotes go because pflag would take the
// quoted word as the name of the value.
func firstSentence(s string) string {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '.' && s[i+1] == ' ' {
			s = s[:i]
			break
		}
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '`' {
			out = append(out, s[i])
		}
	}
	if n := len(out); n > 0 && out[n-1] == '.' {
		out = out[:n-1]
	}
	return string(out)
}

// flagValue notes the text of a flag; the configuration checks it later, together with the other sources.
type flagValue struct {
	key   config.Key
	given map[string]string
	text  string
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string {
	if v.key.IsBool() {
		return "bool"
	}
	return "value"
}

func (v *flagValue) Set(s string) error {
	v.text = s
	v.given[v.key.Name] = s
	return nil
}
