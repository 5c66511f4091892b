module github.com/fusionmq/fusionmq/socket

go 1.26.0

require (
	github.com/cloudwego/netpoll v0.7.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)

require (
	github.com/bytedance/gopkg v0.1.3 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
)
