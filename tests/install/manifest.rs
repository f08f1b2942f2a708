//! deploy/kubernetes as a whole: what its files say of each other is true.

use std::fs;

use yaml_rust2::{Yaml, YamlLoader};

use crate::own_server::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join("deploy/kubernetes").join(file)).unwrap()
}

fn objects() -> Vec<Yaml> {
    YamlLoader::load_from_str(&read("mortise.yaml")).unwrap()
}

fn the(kind: &str) -> Yaml {
    let mut all = objects().into_iter();
    all.find(|object| object["kind"].as_str() == Some(kind))
        .unwrap_or_else(|| panic!("no {kind}"))
}

fn strings(list: &Yaml) -> Vec<&str> {
    list.as_vec()
        .unwrap()
        .iter()
        .filter_map(Yaml::as_str)
        .collect()
}

fn variable<'a>(container: &'a Yaml, name: &str) -> &'a Yaml {
    let all = container["env"].as_vec().unwrap();
    let found = all
        .iter()
        .find(|variable| variable["name"].as_str() == Some(name));
    &found.unwrap_or_else(|| panic!("no {name}"))["value"]
}

fn setting(name: &str) -> u64 {
    let conf = read("redis.conf");
    let line = conf
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

#[test]
fn every_script_that_a_pod_runs_is_in_the_config_map_and_there() {
    let kustomization = YamlLoader::load_from_str(&read("kustomization.yaml")).unwrap();
    let files = strings(&kustomization[0]["configMapGenerator"][0]["files"]);
    for file in &files {
        read(file);
    }
    assert_eq!(strings(&kustomization[0]["resources"]), ["mortise.yaml"]);
    let manifest = read("mortise.yaml");
    let mut scripts = 0;
    for rest in manifest.split("[sh, /mortise/").skip(1) {
        let script = rest.split_once(']').unwrap().0;
        assert!(files.contains(&script), "{script} is in no config map");
        scripts += 1;
    }
    assert_eq!(scripts, 4);
}

#[test]
fn pods_know_each_other_by_the_names_that_they_have() {
    let (set, service) = (the("StatefulSet"), the("Service"));
    let (set_name, pods) = (
        set["metadata"]["name"].as_str().unwrap(),
        set["spec"]["replicas"].as_i64().unwrap(),
    );
    let domain = service["metadata"]["name"].as_str().unwrap();
    assert_eq!(set["spec"]["serviceName"].as_str(), Some(domain));
    let names: Vec<String> = (0..pods)
        .map(|pod| format!("{set_name}-{pod}.{domain}"))
        .collect();
    let template = &set["spec"]["template"];
    let containers = template["spec"]["containers"].as_vec().unwrap();
    assert_eq!(containers.len(), 2);
    for container in containers {
        assert_eq!(
            variable(container, "PEERS").as_str(),
            Some(names.join(" ").as_str())
        );
        assert_eq!(
            variable(container, "SELF").as_str(),
            Some(format!("$(POD).{domain}").as_str())
        );
        assert_eq!(
            variable(container, "DATA").as_str(),
            container["volumeMounts"][0]["mountPath"].as_str()
        );
    }
    for object in [
        &set["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &template["metadata"]["labels"],
    ] {
        assert_eq!(object["app"].as_str(), Some("mortise"));
    }
}

#[test]
fn the_settings_are_those_of_a_failover_that_loses_no_mutual_exclusion() {
    let pods = the("StatefulSet")["spec"]["replicas"].as_i64().unwrap() as u64;
    assert_eq!(setting("min-replicas-to-write"), pods - 1);
    let needed = setting("lock.max-lease") + setting("min-replicas-max-lag") * 1_000 + 3_000;
    assert!(setting("lock.grace") >= needed);
}
