module github.com/fusionmq/fusionmq/integration

go 1.26.0

require (
	github.com/fusionmq/fusionmq/metaq v0.0.0
	github.com/fusionmq/fusionmq/notify v0.0.0
	github.com/fusionmq/fusionmq/sdk-go v0.0.0
	github.com/fusionmq/fusionmq/store v0.0.0
)

replace (
	github.com/fusionmq/fusionmq/metaq => ../metaq
	github.com/fusionmq/fusionmq/notify => ../notify
	github.com/fusionmq/fusionmq/sdk-go => ../sdk-go
	github.com/fusionmq/fusionmq/store => ../store
)
