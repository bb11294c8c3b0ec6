// The control plane of Kubernetes and its store, in one program: the first argument says which part runs, the others are its own.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		fail("the first argument must be etcd, kube-apiserver, kube-controller-manager or kube-scheduler")
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	if part == "etcd" {
		if err := runEtcd(os.Args[1:]); err != nil {
			fail(err)
		}
		return
	}
	command, known := parts[part]
	if !known {
		fail("unknown part: " + part)
	}
	os.Exit(cli.Run(command()))
}

// runEtcd keeps its data in a folder, and serves clients at one URL and peers, of which there are none, at another.
func runEtcd(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("etcd needs a folder, the URL for clients and the URL for peers")
	}
	config := embed.NewConfig()
	config.Name = "only"
	config.Dir = arguments[0]
	config.UnsafeNoFsync = true // the data of a test need not survive the machine
	config.LogLevel = "warn"
	clients, err := url.Parse(arguments[1])
	if err != nil {
		return err
	}
	peers, err := url.Parse(arguments[2])
	if err != nil {
		return err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-etcd.Err():
		return err
	}
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
