package config

import "strings"

// Key is one thing that can be set.
type Key struct {
	Name       string // path in the YAML file, parts joined by dots
	Doc        string // what it does, one or two sentences
	Unit       string // "" when the value carries its own or has none
	Default    string // as written in a file
	Production string // default under profile production; "" when it is the same
	Shown      string // what stands for Default in the documentation when that depends on the machine
	HasFlag    bool   // whether `fusionmq server` has a flag for it
	Live       bool   // whether SIGHUP applies a change to a running process

	value value
}

// Env is the name of the environment variable: FUSIONMQ_ and the name in capitals, with _ for dots and dashes.
func (k Key) Env() string {
	return envPrefix + strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToUpper(k.Name))
}

const envPrefix = "FUSIONMQ_"

// Flag is the name of the flag, without dashes in front; "" when there is none.
func (k Key) Flag() string {
	if !k.HasFlag {
		return ""
	}
	return strings.ReplaceAll(k.Name, ".", "-")
}

// Form says what may be written: the words, or the range with its limits.
func (k Key) Form() string { return k.value.form() }

// IsBool says whether the flag may stand without a value.
func (k Key) IsBool() bool { _, ok := k.value.(boolValue); return ok }

// Text is the current setting as it would be written in a file.
func (k Key) Text() string { return k.value.String() }

// Keys lists everything that can be set, in the order of the documentation, each with its default.
func Keys() []Key {
	var c Config
	ks := keys(&c)
	for _, k := range ks {
		if err := k.value.set(k.Default); err != nil {
			panic("config: default of " + k.Name + ": " + err.Error()) // a mistake in the table; every test finds it
		}
	}
	return ks
}

// Section is the part of a name before its first dot; "" for the keys at the top of the file.
func (k Key) Section() string {
	s, _, ok := strings.Cut(k.Name, ".")
	if !ok {
		return ""
	}
	return s
}

// Settings lists every key with its setting in c.
func (c Config) Settings() []Key { return keys(&c) }
