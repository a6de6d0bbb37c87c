// Package view is how a person sees what a broker answers: topics, subscriptions, brokers and the cluster, as tables and in
// words. It asks nothing and knows no command.
package view
