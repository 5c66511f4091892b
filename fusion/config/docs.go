package config

//go:generate sh -c "go run ../cmd/fusionmq config docs > ../../docs/configuration.md"

import (
	"fmt"
	"io"
	"strings"
)

// WriteDocs writes the reference of all keys as Markdown; docs/configuration.md is its output.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Written by ` + "`fusionmq config docs`" + `; change fusion/config/keys.go instead. -->

A setting comes from the first of these that has it: a flag of ` + "`fusionmq server`" + `, an environment variable, the YAML file named by
` + "`--config`" + ` (or ` + "`FUSIONMQ_CONFIG`" + `), the default. ` + "`fusionmq config show`" + ` prints every setting with the place that it came from.
An unknown key or variable or a value out of range stops the start, with all mistakes listed. Only keys marked **live** change while the
process runs: edit the file and send SIGHUP; the log says what took effect and what waits for a restart.

In the file, the part before a dot is a section:

` + "```yaml" + `
data: /var/lib/fusionmq
advertise-host: mq-1.example.com
broker:
  addr: :10911
  auto-create-topics: false
store:
  flush: sync
` + "```" + `

Sizes take KiB, MiB, GiB or TiB, times take ms, s, m or h. A value in an environment variable is written as in the file.
A configuration of Apache RocketMQ is translated by ` + "`fusionmq config import broker.conf > fusionmq.yaml`" + `.

Variables that begin with FUSIONMQ_ and are no settings of the server, so it leaves them alone:

`)
	for _, o := range otherEnv {
		fmt.Fprintf(&b, "- `%s`: %s\n", o.name, o.doc)
	}
	b.WriteString("- those that Kubernetes makes for a service named fusionmq or fusionmq-...: `..._SERVICE_HOST`, `..._SERVICE_PORT`, `..._PORT` with an address such as tcp://10.0.0.1:10911, `..._PORT_10911_TCP`\n")
	all := Keys()
	for _, s := range sections {
		if s.name == "" {
			fmt.Fprintf(&b, "\n## Top of the file\n\n%s\n", s.doc)
		} else {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.name, s.doc)
		}
		for _, k := range all {
			if k.Section() != s.name {
				continue
			}
			fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", k.Name, k.Doc)
			fmt.Fprintf(&b, "- Default: %s\n", k.shownDefault())
			if k.Production != "" {
				fmt.Fprintf(&b, "- Default under `profile: production`: `%s`\n", k.Production)
			}
			fmt.Fprintf(&b, "- Values: %s\n", k.Form())
			if k.Unit != "" {
				fmt.Fprintf(&b, "- Unit: %s\n", k.Unit)
			}
			fmt.Fprintf(&b, "- Environment: `%s`", k.Env())
			if k.HasFlag {
				fmt.Fprintf(&b, "; flag: `--%s`", k.Flag())
			}
			b.WriteByte('\n')
			if k.Live {
				b.WriteString("- **live**: SIGHUP applies a change\n")
			} else {
				b.WriteString("- Changes at the next start\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (k Key) shownDefault() string {
	switch {
	case k.Shown != "":
		return k.Shown
	case k.Default == "":
		return "empty"
	default:
		return "`" + k.Default + "`"
	}
}

// WriteYAML writes every setting of l as a complete file, each line with the place that it came from.
func WriteYAML(w io.Writer, l *Loaded) error {
	var b strings.Builder
	section := ""
	for _, k := range l.Settings() {
		name := yamlName(&b, k, &section)
		fmt.Fprintf(&b, "%-40s # %s\n", name+": "+yamlText(k.Text(), k.IsBool()), l.Origin(k.Name))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// yamlName is how the name of a setting stands in a file. It begins the section of the setting unless that is the one that is open.
func yamlName(b *strings.Builder, k Key, section *string) string {
	s := k.Section()
	if s == "" {
		return k.Name
	}
	if s != *section {
		fmt.Fprintf(b, "%s:\n", s)
		*section = s
	}
	return "  " + strings.TrimPrefix(k.Name, s+".")
}

// yamlText quotes what YAML would read as something other than the text itself.
func yamlText(s string, plain bool) string {
	if plain {
		return s
	}
	quote := s == ""
	for i, r := range s {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '/' || r == '.' ||
			i > 0 && (r == '-' || r == ':')
		quote = quote || !ok
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "~":
		quote = true
	}
	if quote || strings.HasSuffix(s, ":") {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return s
}
