package notify

import "github.com/fusionmq/fusionmq/notify/wire"

// Binding is one subscription to a topic. Make one with Direct, Pattern, Filter or Fanout.
type Binding struct{ b wire.Binding }

// BindingOption changes a binding.
type BindingOption func(*wire.Binding)

// WithWatermark bounds the pushed and unacknowledged messages of this binding over all machines of the group,
// overriding the default of the server. n is 1 or more.
func WithWatermark(n int32) BindingOption { return func(b *wire.Binding) { b.WaterMark = n } }

// Volatile makes the server skip the group while none of its machines is connected, overriding the default of keeping
// messages for it.
func Volatile() BindingOption { return func(b *wire.Binding) { b.Persistent = false } }

// WithShadow asks for stress-test messages too, overriding the default of not getting them. A FusionMQ server refuses it
// for now.
func WithShadow() BindingOption { return func(b *wire.Binding) { b.Shadow = true } }

// Direct subscribes to one message type of a topic.
func Direct(topic, messageType string, opts ...BindingOption) Binding {
	return binding(wire.Direct, topic, messageType, opts)
}

// Pattern subscribes to the message types that a regular expression (RE2) matches as a whole. A FusionMQ server refuses it for now.
func Pattern(topic, expr string, opts ...BindingOption) Binding {
	return binding(wire.Pattern, topic, expr, opts)
}

// Filter subscribes to the messages whose header a filter expression selects. A FusionMQ server refuses it for now.
func Filter(topic, expr string, opts ...BindingOption) Binding {
	return binding(wire.Header, topic, expr, opts)
}

// Fanout subscribes to every message of a topic.
func Fanout(topic string, opts ...BindingOption) Binding {
	return binding(wire.Fanout, topic, "", opts)
}

func binding(kind wire.BindingKind, topic, expr string, opts []BindingOption) Binding {
	b := wire.Binding{Kind: kind, Topic: topic, Expr: expr, WaterMark: wire.DefaultWaterMark, Persistent: true}
	for _, o := range opts {
		o(&b)
	}
	return Binding{b}
}

// String is the binding as it travels, without its group.
func (b Binding) String() string { return b.b.String() }

// key is what identifies a binding of one group.
func (b Binding) key() wire.Binding {
	return wire.Binding{Kind: b.b.Kind, Topic: b.b.Topic, Expr: b.b.Expr}
}
