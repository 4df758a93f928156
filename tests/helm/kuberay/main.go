// Command pods prints, as JSON, the pods and the head service that KubeRay makes of the
// RayCluster on standard input.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/common"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	var cluster rayv1.RayCluster
	check(yaml.UnmarshalStrict(text, &cluster))
	check(utils.ValidateRayClusterMetadata(cluster.ObjectMeta))
	check(utils.ValidateRayClusterSpec(&cluster.Spec, cluster.Annotations))
	check(utils.ValidateRayClusterUpgradeOptions(&cluster))
	ctx := context.Background()
	address := utils.GenerateFQDNServiceName(ctx, cluster, cluster.Namespace)
	port := common.GetHeadPort(cluster.Spec.HeadGroupSpec.RayStartParams)
	head := cluster.Spec.HeadGroupSpec
	template := common.DefaultHeadPodTemplate(ctx, cluster, head, utils.PodName(cluster.Name, rayv1.HeadNode, true), port)
	pods := []corev1.Pod{common.BuildPod(ctx, template, rayv1.HeadNode, head.RayStartParams, port, false, utils.RayClusterCRD, address, nil, cluster.Spec.RayVersion)}
	for _, group := range cluster.Spec.WorkerGroupSpecs {
		template := common.DefaultWorkerPodTemplate(ctx, cluster, group, utils.PodName(cluster.Name+"-"+group.GroupName, rayv1.WorkerNode, true), address, port, "", 0, 0)
		pods = append(pods, common.BuildPod(ctx, template, rayv1.WorkerNode, group.RayStartParams, port, false, utils.RayClusterCRD, address, nil, cluster.Spec.RayVersion))
	}
	service, err := common.BuildServiceForHeadPod(ctx, cluster, map[string]string{}, map[string]string{})
	check(err)
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	check(out.Encode(map[string]any{"pods": pods, "service": service}))
}
