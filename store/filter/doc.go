// Package filter is the expression language that selects messages by their properties: one tree, two spellings.
//
// [ParseSQL92] reads what RocketMQ consumers write (`a > 5 AND colour IN ('red', 'blue')`), [ParseNotify] what Notify
// subscribers write (`property.a > 5 && messageType =~ /^23/`); the latter accepts SQL's words too. Either gives an
// [Expr]: immutable, with a canonical text ([Expr.String], the same for all ways to write one thing). [Expr.Compile]
// makes a [Program], whose [Program.Match] reads RocketMQ's property text as it lies in a record, without allocating and
// without a map. [Expr.Eval] walks the tree and is the plain statement of what an expression means; a fuzz test holds the
// two against each other.
//
// Logic has three values, and only [True] selects a message. The spellings differ in what values mean:
//
//	                                  SQL92                             Notify
//	missing property in a comparison  unknown                           unknown; == null asks for it
//	property against a whole number   as int64, or the evaluation fails as int64, float64 beyond, or unknown
//	property against a fraction       as Java reads a double, or fails  as float64, or unknown
//	two properties, < and >           as Java doubles, or fails         as numbers if both are, else by bytes
//	two properties, =                 by bytes                          as numbers if both are, else by bytes
//	property against true, false      "true" in any case is true, all   "true", "false" in any case, else unknown
//	                                  else false
//	bare property as a condition      false when it is there            true, false by its text, else unknown
//	CONTAINS and its like, missing    false, also behind NOT            unknown
//
// A failed evaluation selects nothing, and nothing to the right of it is looked at, as in RocketMQ: `a > 1 OR b = 'x'`
// does not select b=x when a is no number.
//
// Where RocketMQ throws, forgets or guesses, this package does what spec/remoting.md and faults.md say instead: a
// literal may stand on either side of a comparison; text behind the end of an expression is an error; a whole number is
// compared as int64, also where RocketMQ reads an int32; a property that is missing on the right side is unknown, too; a
// minus belongs to a number; names may stand in backquotes.
//
// Everything here is a pure function. Values of all types may be used by any goroutine, except that a [Frame] belongs to
// one at a time.
package filter
