// Package system is the tests of the built binaries from outside: the published RocketMQ Go client, the Notify client of sdk-go, raw
// sockets, signals and fusionctl. There is no code here but tests.
package system
