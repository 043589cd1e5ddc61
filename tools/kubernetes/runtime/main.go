// Command runtime is what a node of a test cluster has below its kubelet: a container runtime of Kubernetes' interface (CRI) that runs the
// programs of this machine in namespaces of their own.
//
// It pulls nothing: a table maps images to programs. It is no security boundary: there is no seccomp profile, and files of this
// machine's /usr are visible. It carries no attach and no terminals.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if len(os.Args) < 2 {
		usage()
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	switch os.Args[1] {
	case "node":
		config := nodeConfig{}
		flags.StringVar(&config.socket, "socket", "", "socket to serve the kubelet on")
		flags.StringVar(&config.root, "root", "", "folder for roots of containers")
		flags.StringVar(&config.images, "images", "", "JSON file that maps images to programs")
		flags.StringVar(&config.bridge, "bridge", "", "bridge that pods are connected to")
		flags.StringVar(&config.gateway, "gateway", "", "address of the bridge")
		flags.IntVar(&config.number, "number", 1, "number of the node, which its pods' addresses begin with")
		_ = flags.Parse(os.Args[2:])
		log.Fatal(serveNode(config))
	case "init":
		log.Fatal(initContainer())
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "runtime: expected node, and its options")
	os.Exit(2)
}
