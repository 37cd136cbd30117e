"""Faults that tools of this kind have shown, each with the tests that show the right behaviour.

Those for the GPU run in `make test` on an emulated one. A test that `make test` leaves out, or of
which it runs only smaller sizes, is followed by the target that runs it.

| case | what | tests |
|---|---|---|
| 1 | a sliced or batched list column | builder/test_source.py: test_a_slice_is_values_and_offsets_together, test_row_groups_larger_than_the_batch |
| 2 | null rows, null tokens, nulls over hidden values | builder/test_source.py: test_null_rows, test_null_rows_over_hidden_values, test_null_token |
| 3 | shards of several types, and unfit ones | builder/test_source.py: test_integer_types_of_shards_are_widened, test_every_unfit_shard_is_named_before_any_work |
| 4 | ids out of range, and ids far apart | cases/test_input.py: test_4_ids_that_are_none; cases/test_memory.py: test_4_ids_far_apart_take_no_memory |
| 5 | uint32 without the Arrow schema | builder/test_source.py: test_without_the_arrow_schema |
| 6 | large, fixed-size and dictionary-encoded lists | builder/test_columns.py: test_lists_of_integers; builder/test_source.py: test_dictionary_encoded_integers |
| 7 | 2^31 tokens in a row group | cases/test_large.py: test_7_more_than_2_31_tokens_in_a_row_group (make test-large) |
| 8 | markers beside shards, damaged shards | builder/test_inputs.py: test_folder_in_natural_order_without_markers; builder/test_source.py: test_every_unfit_shard_is_named_before_any_work; cases/test_input.py: test_8_damaged_shards_are_listed_and_nothing_is_written |
| 9 | any order, any split, any machine | cases/test_key_sets.py: test_9_one_artifact_whatever_the_way, test_9_the_environment_has_no_part_in_it; builder/test_build.py: test_bytes_do_not_depend_on_threads_ranges_shards_or_spilling |
| 10 | a shard that changes while the build runs | cases/test_input.py: test_10_a_shard_that_changes_while_the_build_runs, test_10_by_the_command_line |
| 11 | a keyword in two shards, with values | cases/test_input.py: test_11_one_keyword_in_two_shards, test_11_a_value_that_is_null |
| 12 | column names, two candidates | builder/test_source.py: test_column_names, test_two_candidates |
| 13 | Hive partitions, s3:// | cases/test_input.py: test_13_hive_partitions; builder/test_s3.py: test_files_folders_globs, test_13_build_from_a_bucket, test_13_a_bucket_and_a_folder_of_the_same_rows, test_13_several_inputs_have_no_name, test_13_verify_and_lookup_of_a_bucket, test_13_a_bucket_that_is_not_there |
| 14 | no rows, no tokens, one keyword | cases/test_input.py: test_14_no_rows, test_14_only_empty_lists, test_14_one_keyword_of_one_token |
| 15 | prefixes that are keywords and that are not | cases/test_key_sets.py: test_15_prefixes; test_search_cases.py: test_15_prefixes_that_are_keywords_and_prefixes_that_are_not |
| 16 | the longest keyword | cases/test_key_sets.py: test_16_the_longest_keyword_and_its_prefix, test_16_many_longest_keywords_in_tails, test_16_one_token_too_many |
| 17 | a wide root, 65 nodes, a chain | cases/test_key_sets.py: test_17_a_root_of_two_million_children, test_17_levels_about_a_word_and_two_threads, test_17_a_chain_without_branching |
| 18 | token 0 | cases/test_key_sets.py: test_18_token_0; test_search_cases.py: test_18_token_0 |
| 19 | files that are cut, grown, none, or change | formats/test_reader.py: test_cut_at_every_section, test_grown, test_not_an_artifact, test_changed_while_open, test_cut_while_it_is_opened; cpu/test_trie.py: test_a_file_that_changes_while_open |
| 20 | flipped bits, headers and payloads that lie | formats/test_invariants.py: test_flipped_bit, test_header_bits, test_level_table_that_lies; formats/test_reader.py: test_header_length, test_sections_that_lie; cpu/test_wrong_payload.py: test_wrong_payloads_do_no_harm; fuzz/test_mutants.py: test_20_mutants_do_no_harm; gpu/test_mutants.py: test_20_mutants_do_no_harm_on_the_device; gpu/test_device.py: test_20_a_wrong_payload_is_survived |
| 21 | a newer format, and old ones | formats/test_reader.py: test_newer_version; formats/test_golden.py: test_version_1; cases/test_newer_format.py: test_21_a_newer_version_is_no_damage, test_21_verify_of_a_newer_version_with_json, test_21_a_wrong_digest_is_damage_whatever_the_version, test_21_a_wrong_payload_of_a_newer_version_is_not_looked_at |
| 22 | a full disk | cases/test_disk.py: test_22_full_scratch, test_22_full_output, test_22_scratch_and_output_on_one_disk, test_22_a_disk_without_a_byte, test_22_any_write_that_finds_no_room |
| 23 | killed at any moment | cases/test_killed.py: test_23_killed_at_any_moment, test_23_killed_before_it_has_begun, test_23_a_signal_as_a_file_is_made_or_removed, test_23_the_scratch_of_the_dead_is_removed_and_that_of_the_living_is_not |
| 24 | two builds at once, nowhere to write | cases/test_machine.py: test_24_two_builds_at_once_with_a_cold_cache, test_24_two_builds_to_one_output, test_24_a_package_and_a_home_that_are_read_only, test_24_no_home |
| 25 | too little memory | cases/test_memory.py: test_25_too_little_says_the_least_that_would_do, test_25_any_number_of_rows, test_25_any_shape, test_25_a_hot_keyword_with_values, test_25_less_memory_than_the_system_gives, test_25_default_threads_are_as_many_as_the_memory_is_for |
| 26 | an output that cannot be written | cases/test_disk.py: test_26_a_folder_that_is_read_only, test_26_a_working_folder_that_is_read_only, test_26_a_folder_that_is_missing, test_26_a_file_that_is_there, test_26_a_scratch_folder_that_is_read_only, test_26_an_input_and_an_artifact_that_may_not_be_read |
| 27 | stdout closed early; a half-arrived export | cases/test_machine.py: test_27_a_reader_that_leaves_early, test_27_the_shell; cases/test_export.py: test_a_half_arrived_export |
| 28 | a beam wider than the key set | test_search_cases.py: test_28_a_beam_wider_than_the_key_set |
| 29 | proposals at the limits | test_search_cases.py: test_29_proposals_out_of_vocabulary, test_29_tokens_of_the_vocabulary_that_no_keyword_has, test_29_one_proposal_and_no_proposal, test_29_more_steps_than_tokens_and_fewer, test_29_equal_scores_come_by_step_beam_and_proposal, test_29_nan_and_infinity_are_refused, test_29_the_first_bad_one_is_named, test_29_end_log_probabilities_that_are_refused, test_29_a_score_that_overflows_does_not_hide_those_that_do_not |
| 30 | equal position and previous token | test_search_cases.py: test_30_equal_position_and_previous_token_do_not_mix |
| 31 | the widest beam, the widest node, batches | test_search_cases.py: test_31_the_widest_beam_and_proposals; cases/test_large.py: test_31_a_wide_node_and_the_widest_search (more: make test-large); gpu/test_parity.py: test_31_a_node_with_ten_million_children (make test-gpu); test_search_properties.py: test_many_children_and_many_proposals, test_every_layout_and_batches_of_64 |
| 32 | a GPU with too little memory, or with two processes | gpu/test_device.py: test_32_too_little_memory_is_said_before_anything_is_loaded, test_32_too_little_memory_for_a_search; gpu/test_commands.py: test_32_load_with_too_little_memory, test_32_two_processes_at_once (make test-gpu) |
| | an artifact that is replaced while it is read | cases/test_readers.py: test_an_open_trie_goes_on_with_the_old_file, test_a_running_search_goes_on_with_the_old_file, test_a_running_dump_goes_on_with_the_old_file |
"""  # noqa: E501

# Of the cases above, those that no test of `make test` shows, and what does.
NOT_IN_MAKE_TEST = {7: "make test-large"}
